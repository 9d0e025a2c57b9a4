//! Zones with commits that the shared store lacks are held: segments come from there, also behind a
//! power cut. Where the region needs them they go, and a checkpoint takes their place.

use super::nodes::catch_up;
use super::*;
use crate::common::{alone, rounds};
use terrace::{StoreFault, WriteBatch};

/// Puts large values to a few rows, so that zones die.
fn churn(db: &Database, rounds: u64) -> Result<()> {
    let table = db.existing_table("t")?;
    for n in 0..rounds {
        let mut batch = WriteBatch::new();
        batch.put(&table, key(n % 4), Chance::new(n).bytes(20_000));
        db.write_with(&batch, Durability::Relaxed)?;
        // The store may be away.
        drop(db.step());
    }
    Ok(())
}

/// How many of these values take a quarter of the region.
fn quarter(db: &Database) -> u64 {
    db.stats().pm.capacity / 4 / 20_000
}

fn released(db: &Database) -> u64 {
    db.stats().background.zones_released
}

fn checkpoints(db: &Database) -> u64 {
    db.stats().share.unwrap().checkpoints
}

fn note(db: &Database) -> Option<String> {
    db.stats().share.unwrap().note
}

/// A writer of which all is shipped, and its machine.
fn begun(server: &ObjectServer, bug: Option<Failpoint>) -> (Machine, Database) {
    begun_on(Machine::with_files(), server, bug)
}

fn begun_on(
    machine: Machine,
    server: &ObjectServer,
    bug: Option<Failpoint>,
) -> (Machine, Database) {
    let db = writer_options(&machine, server, bug).open(PATH).unwrap();
    make_tables(&db, &|| ());
    settle(|| db.step());
    (machine, db)
}

/// Bug: a writer that was cut sent all that lies above its levels, however few commits the store
/// lacked. Cause: what waited to be shipped lay in memory. Fix: it lies in zones, which are held.
#[test]
fn commits_that_a_cut_left_go_out_as_segments() {
    let _turn = alone();
    let server = ObjectServer::new();
    let (mut machine, db) = begun(&server, None);
    let readers = Machine::with_files();
    let follower = of_machine(&readers, None).follow(server.url(), "/follower").unwrap();
    drop(db);
    // All but what has rows in extents.
    let kinds: Vec<usize> = (0..WORK.len()).filter(|n| *n != 8).collect();
    for (round, kind) in (0..).zip(kinds.into_iter().cycle().take(22)) {
        let db = writer(&machine, &server);
        settle(|| db.step());
        WORK[kind](&db, round * 20, &|| ()).unwrap();
        let survive = [Survive::Nothing, Survive::Everything][round as usize % 2];
        let restarts = follower.status().restarts;
        machine = machine.crash(survive);
        let db = writer(&machine, &server);
        let expected = content(&db).unwrap();
        catch_up(|| db.step()).unwrap();
        // Every other prepare has spilled, and its runs are not kept.
        let may_leap = [10, 11].contains(&kind);
        assert!(checkpoints(&db) == 0 || may_leap, "work {kind} in round {round}");
        assert_eq!(content(&taken_over(&server.copy())).unwrap(), expected, "work {kind}");
        catch_up(|| follower.step()).unwrap();
        assert_eq!(content(&follower.database().unwrap()).unwrap(), expected, "work {kind}");
        assert!(follower.status().restarts == restarts || may_leap, "work {kind}");
    }
}

/// An opening may find a commit with runs, or no commit that was shipped since the cut before. The
/// store comes to have all that it finds.
#[test]
fn what_any_opening_finds_comes_to_the_store() {
    let _turn = alone();
    for seed in 0..rounds(4, 100) {
        let is_memory = seed % 2 == 1;
        openings(seed, if is_memory { Machine::with_memory() } else { Machine::with_files() });
    }
}

fn openings(seed: u64, machine: Machine) {
    let server = ObjectServer::new();
    let (mut machine, db) = begun_on(machine, &server, None);
    drop(db);
    // One that is closed ships what it has.
    let (mut chance, mut cut) = (Chance::new(seed), Vec::new());
    for round in 0..20 {
        let db = writer(&machine, &server);
        for _ in 0..chance.below(4) {
            drop(db.step());
        }
        for n in 0..1 + chance.below(3) {
            let kind = chance.below(WORK.len() as u64) as usize;
            drop(WORK[kind](&db, round * 20 + n, &|| ()));
        }
        cut.push(db);
        let survive = [Survive::Nothing, Survive::Everything][chance.below(2) as usize];
        machine = machine.crash(survive);
        if chance.below(4) == 0 {
            // This one fails in the midst of an opening, and the next one goes on.
            server.always(Some(StoreFault::Refuse));
            writer_options(&machine, &server, None).open(PATH).unwrap_err();
            server.always(None);
        }
        if chance.below(8) == 0 {
            // An opening that does not share releases what it likes.
            let db = of_machine(&machine, None).open(PATH).unwrap();
            churn(&db, 250).unwrap();
            db.close().unwrap();
        }
        if chance.below(2) == 0 {
            let db = writer(&machine, &server);
            let expected = content(&db).unwrap();
            catch_up(|| db.step()).unwrap();
            let found = content(&taken_over(&server.copy())).unwrap();
            assert_eq!(found, expected, "seed {seed}, round {round}");
        }
    }
}

/// While the store is away dead zones stay, and go once it has their commits.
#[test]
fn zones_are_held_until_the_store_has_their_commits() {
    let _turn = alone();
    let server = ObjectServer::new();
    let (machine, db) = begun(&server, None);
    server.always(Some(StoreFault::Refuse));
    let before = released(&db);
    churn(&db, quarter(&db)).unwrap();
    assert_eq!(released(&db), before, "they are held");
    assert!(db.stats().pm.zones_pinned > 0);
    let expected = content(&db).unwrap();
    server.always(None);
    settle(|| db.step());
    let stats = db.stats().share.unwrap();
    assert!(released(&db) > before, "they go");
    assert!(stats.segment_bytes >= quarter(&db) * 20_000, "segments have them: {stats:?}");
    assert_eq!(content(&taken_over(&server.copy())).unwrap(), expected);
    drop((db, machine));
}

/// Bug, planted: zones go although the store lacks commits in them. The shipper misses an LSN.
#[test]
fn a_zone_that_was_released_too_early_is_missed() {
    let _turn = alone();
    let misses = |bug| {
        let server = ObjectServer::new();
        let (_machine, db) = begun(&server, bug);
        server.always(Some(StoreFault::Refuse));
        churn(&db, quarter(&db)).unwrap();
        server.always(None);
        catch_up(|| db.step()).is_err()
    };
    assert!(!misses(None));
    assert!(misses(Some(Failpoint::ReleaseUnshipped)), "the planted bug was not found");
}

/// The store is away until the region needs the zones: commits go on, and `Remote` ones wait.
#[test]
fn a_store_that_is_away_for_long_holds_no_local_commit_up() {
    let _turn = alone();
    let server = ObjectServer::new();
    let (machine, db) = begun(&server, None);
    let sent = checkpoints(&db);
    server.always(Some(StoreFault::Refuse));
    churn(&db, 16 * quarter(&db)).unwrap();
    assert!(released(&db) > 0, "zones were let go");
    assert_eq!(db.stats().pace.delay_ns, 0, "no writer is slowed down");
    let table = db.existing_table("t").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&table, "remote", "waits");
    let pending = db.enqueue(batch, Durability::Remote).unwrap();
    drop(db.step());
    let said = note(&db).unwrap();
    assert!(said.contains("to take the place of"), "{said}");
    server.always(None);
    pending.wait().unwrap();
    assert_eq!(content(&taken_over(&server.copy())).unwrap(), content(&db).unwrap());
    settle(|| db.step());
    assert_eq!(note(&db), None);
    let again = checkpoints(&db);
    assert!(again > sent);
    // From here on zones are held again.
    let machine = {
        let table = db.existing_table("t").unwrap();
        table.put("later", "one").unwrap();
        machine.crash(Survive::Nothing)
    };
    let db = writer(&machine, &server);
    settle(|| db.step());
    assert_eq!(checkpoints(&db), 0, "a segment has it");
    assert_eq!(content(&taken_over(&server.copy())).unwrap(), content(&db).unwrap());
}

/// Zones are let go, and the power is cut at each step of that and of what follows: no later
/// opening takes what is left for all there is.
#[test]
fn a_cut_while_zones_are_let_go_loses_no_commit() {
    let _turn = alone();
    let mut cuts = 0;
    for n in 1..40 {
        let survive = [Survive::Nothing, Survive::Everything][n as usize % 2];
        let server = ObjectServer::new();
        let (machine, db) = begun(&server, None);
        server.always(Some(StoreFault::Refuse));
        churn(&db, quarter(&db)).unwrap();
        machine.cut_before(n, survive);
        db.forget_unshipped();
        for _ in 0..20 {
            drop(db.step());
        }
        churn(&db, 10).unwrap();
        server.always(None);
        // The log is as it was at the cut.
        let Some(found) = machine.found() else { break };
        cuts += 1;
        let db = writer(&found, &server);
        let expected = content(&db).unwrap();
        catch_up(|| db.step()).unwrap();
        assert_eq!(content(&taken_over(&server.copy())).unwrap(), expected, "cut {n}");
    }
    assert!(cuts > 5, "{cuts}");
}

/// A bucket that was put back to an older state lacks commits of which the zones are gone.
#[test]
fn a_bucket_that_was_put_back_gets_a_checkpoint() {
    let _turn = alone();
    let server = ObjectServer::new();
    let (machine, db) = begun(&server, None);
    let older = server.copy();
    churn(&db, 120).unwrap();
    settle(|| db.step());
    assert!(released(&db) > 0);
    let machine = machine.crash(Survive::Everything);
    let db = writer(&machine, &older);
    let expected = content(&db).unwrap();
    settle(|| db.step());
    assert!(checkpoints(&db) > 0);
    assert_eq!(content(&taken_over(&older)).unwrap(), expected);
}

/// Checkpoints of the writer come by bytes, soon.
fn soon(machine: &Machine, server: &ObjectServer) -> Database {
    writer_options(machine, server, None).checkpoint_bytes(4 << 10).open(PATH).unwrap()
}

/// Zones of a writer are let go while the store is away.
fn let_go(db: &Database, server: &ObjectServer, round: u64) {
    let counted = db.existing_table("counted").unwrap();
    server.always(Some(StoreFault::Refuse));
    let before = released(db);
    counted.merge(key(round % 5), 1i64.to_le_bytes()).unwrap();
    churn(db, 4 * quarter(db)).unwrap();
    assert!(released(db) > before, "zones were let go");
    server.always(None);
}

/// Checkpoints come by bytes, beside operands and drains: a takeover has what the writer has.
fn levels_follow(db: &Database, server: &ObjectServer, round: u64) {
    let counted = db.existing_table("counted").unwrap();
    let sent = checkpoints(db);
    for n in 0..80 {
        counted.merge(key(n % 5), 1i64.to_le_bytes()).unwrap();
        db.existing_table("t").unwrap().put(key(n), value(n, round)).unwrap();
        if n % 7 == 0 {
            db.compact_range(&counted, key(0)..key(n % 5)).unwrap();
        }
        for _ in 0..4 {
            db.step().unwrap();
        }
        if n % 10 == 0 {
            assert_eq!(found_as_it_is(db, server), content(db).unwrap(), "round {round}, {n}");
        }
    }
    assert!(checkpoints(db) > sent + 1);
}

/// What a takeover finds once all is shipped.
fn found_as_it_is(db: &Database, server: &ObjectServer) -> Content {
    while db.stats().share.unwrap().lag_commits > 0 {
        db.step().unwrap();
    }
    content(&taken_over(&server.copy())).unwrap()
}

/// Behind a checkpoint that takes the place of what was let go, the next one that comes by bytes
/// has the levels alone: what lies above them then is drained first.
#[test]
fn checkpoints_of_levels_come_behind_zones_that_were_let_go() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = soon(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    for round in 0..4 {
        let_go(&db, &server, round);
        levels_follow(&db, &server, round);
    }
}

/// The power is cut before that checkpoint is there, or right behind it.
#[test]
fn checkpoints_of_levels_come_behind_a_cut_of_a_writer_that_let_zones_go() {
    let _turn = alone();
    let mut leapt = [false; 2];
    for steps in 0..6 {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = soon(&machine, &server);
        make_tables(&db, &|| ());
        settle(|| db.step());
        let sent = checkpoints(&db);
        let_go(&db, &server, steps);
        for _ in 0..steps {
            db.step().unwrap();
        }
        leapt[usize::from(checkpoints(&db) > sent)] = true;
        let survive = [Survive::Nothing, Survive::Everything][steps as usize % 2];
        let db = soon(&machine.crash(survive), &server);
        levels_follow(&db, &server, steps);
    }
    assert_eq!(leapt, [true; 2], "before and behind the checkpoint");
}

/// An opening ships operands from zones, of which the levels have some by then.
#[test]
fn checkpoints_of_levels_come_behind_an_opening_that_goes_on() {
    let _turn = alone();
    let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
    let db = soon(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    let follower = of_machine(&Machine::with_files(), None).follow(server.url(), "/follower");
    let follower = follower.unwrap();
    drop(db);
    for round in 0..6 {
        let db = soon(&machine, &server);
        catch_up(|| db.step()).unwrap();
        catch_up(|| follower.step()).unwrap();
        server.always(Some(StoreFault::Refuse));
        let counted = db.existing_table("counted").unwrap();
        for n in 0..20 {
            counted.merge(key(n % 5), 1i64.to_le_bytes()).unwrap();
            if n % 8 == round {
                db.compact_range(&counted, key(0)..key(3)).unwrap();
            }
        }
        let survive = [Survive::Nothing, Survive::Everything][round as usize % 2];
        machine = machine.crash(survive);
        server.always(None);
        let restarts = follower.status().restarts;
        let db = soon(&machine, &server);
        let expected = content(&db).unwrap();
        assert_eq!(found_as_it_is(&db, &server), expected, "round {round}");
        catch_up(|| follower.step()).unwrap();
        assert_eq!(content(&follower.database().unwrap()).unwrap(), expected, "round {round}");
        assert_eq!(follower.status().restarts, restarts, "segments have all");
        levels_follow(&db, &server, round);
        machine = machine.crash(survive);
    }
}
