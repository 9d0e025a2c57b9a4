//! What holds of the state that the scheduler decides by, under its name.

use super::state::RegionState;

/// What ages has a time to live, or had one: so a table with one ages.
pub(super) fn ages_if_it_lives(state: &RegionState) -> bool {
    !state.has_ttl || state.has_aging
}
