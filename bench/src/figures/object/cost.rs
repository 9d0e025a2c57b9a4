//! What a month costs: bytes and requests, at list prices.

use anyhow::{Context, Result};
use serde::Deserialize;

const PRICES: &str = include_str!("prices.toml");

/// Cloud prices count in these.
const GB: f64 = 1e9;

const DAYS: f64 = 30.0;

/// The part of the archive that is written again each day.
pub(super) const DAILY: f64 = 0.01;

#[derive(Debug, Deserialize)]
struct ObjectPrice {
    name: String,
    gb_month: f64,
    thousand_puts: f64,
    thousand_gets: f64,
}

#[derive(Debug, Deserialize)]
struct VolumePrice {
    name: String,
    gb_month: f64,
}

/// List prices of a day.
#[derive(Debug, Deserialize)]
pub(super) struct Prices {
    date: String,
    object: ObjectPrice,
    volume: VolumePrice,
}

/// What was measured, for each byte of users' rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    /// Bytes on the volume, and in the object store, for each byte of rows.
    pub(super) volume: f64,
    pub(super) objects: f64,
    /// Requests for each byte that is written again.
    pub(super) puts: f64,
    pub(super) gets: f64,
}

impl Prices {
    pub(super) fn read() -> Result<Prices> {
        toml::from_str(PRICES).context("prices.toml")
    }

    /// What they are prices of.
    pub(super) fn text(&self) -> String {
        format!("list prices of {}: {} and {}", self.date, self.object.name, self.volume.name)
    }

    /// Dollars a month for the bytes of an archive of so many bytes of rows.
    fn bytes(&self, of: Footprint, archive: f64) -> f64 {
        let volume = of.volume * archive / GB * self.volume.gb_month;
        volume + of.objects * archive / GB * self.object.gb_month
    }

    /// Dollars a month for the requests, of which a part is written again each day.
    fn requests(&self, of: Footprint, archive: f64, daily: f64) -> f64 {
        let written = archive * daily * DAYS;
        let puts = of.puts * written / 1000.0 * self.object.thousand_puts;
        puts + of.gets * written / 1000.0 * self.object.thousand_gets
    }

    /// Dollars a month.
    pub(super) fn month(&self, of: Footprint, archive: f64, daily: f64) -> f64 {
        self.bytes(of, archive) + self.requests(of, archive, daily)
    }

    /// The part that may be written again each day until objects cost as much as the volume.
    pub(super) fn break_even(&self, of: Footprint, beside: Footprint) -> f64 {
        let saved = self.bytes(beside, 1.0) - self.bytes(of, 1.0);
        saved / self.requests(of, 1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_adds_up() {
        let prices = Prices::read().unwrap();
        let objects = Footprint { volume: 0.1, objects: 1.0, puts: 1e-7, gets: 1e-7 };
        let volume = Footprint { volume: 1.1, ..Footprint::default() };
        let month = prices.month(objects, 1e12, DAILY);
        let requests = 3e11 * 1e-7 / 1000.0 * (0.005 + 0.0004);
        assert!((month - (8.0 + 23.0 + requests)).abs() < 1e-6, "{month}");
        assert!((prices.month(volume, 1e12, DAILY) - 88.0).abs() < 1e-6);
        let even = prices.break_even(objects, volume);
        let [one, other] = [objects, volume].map(|of| prices.month(of, 1e12, even));
        assert!((one / other - 1.0).abs() < 1e-9, "{one} {other}");
    }
}
