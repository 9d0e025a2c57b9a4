//! The rows that there are before the first transaction (clause 4.3 of the standard, at any scale).

use anyhow::Result;

use super::Scale;
use super::schema::Table;
use crate::random::Random;
use crate::stores::transactions::{Transactional, run};

/// Districts of a warehouse.
pub(super) const DISTRICTS: u32 = 10;

/// Last names that there are.
pub(super) const NAMES: u32 = 1000;

/// What each district has been paid, in cents, and what each customer has paid.
const PAID: i64 = 1000;

/// Loads all tables.
pub(super) fn load(store: &dyn Transactional, scale: Scale, seed: u64) -> Result<()> {
    for first in (1..=scale.items).step_by(500) {
        run(store, |t| {
            (first..=scale.items.min(first + 499)).try_for_each(|item| {
                let price = 100 + i64::from(item) * 37 % 9900;
                Table::Item.put(t, &[item], &Table::Item.row(&[price]))
            })
        })?;
    }
    for w in 1..=scale.warehouses {
        let ytd = PAID * i64::from(scale.customers) * i64::from(DISTRICTS);
        run(store, |t| Table::Warehouse.put(t, &[w], &Table::Warehouse.row(&[ytd, 7])))?;
        for first in (1..=scale.items).step_by(500) {
            run(store, |t| {
                (first..=scale.items.min(first + 499)).try_for_each(|item| {
                    Table::Stock.put(t, &[w, item], &Table::Stock.row(&[50, 0, 0, 0]))
                })
            })?;
        }
        for d in 1..=DISTRICTS {
            district(store, scale, (w, d), seed)?;
        }
    }
    Ok(())
}

/// How many orders of a district with so many customers were delivered before the first
/// transaction: two thirds.
pub(super) fn delivered_at_first(customers: i64) -> i64 {
    customers * 2 / 3
}

/// A district with its customers, each with an order; of these, a third is not delivered.
fn district(store: &dyn Transactional, scale: Scale, (w, d): (u32, u32), seed: u64) -> Result<()> {
    let orders = scale.customers;
    let ytd = PAID * i64::from(orders);
    let next = i64::from(orders) + 1;
    run(store, |t| Table::District.put(t, &[w, d], &Table::District.row(&[ytd, 5, next])))?;
    for first in (1..=orders).step_by(100) {
        run(store, |t| {
            for n in first..=orders.min(first + 99) {
                let customer = Table::Customer.row(&[-PAID, PAID, 1, 0, 3]);
                Table::Customer.put(t, &[w, d, n], &customer)?;
                let name = n.wrapping_mul(7919) % NAMES;
                let nothing = Table::CustomerByName.row(&[]);
                Table::CustomerByName.put(t, &[w, d, name, n], &nothing)?;
                let paid = Table::History.row(&[PAID, i64::from(w), i64::from(d)]);
                Table::History.put(t, &[w, d, n, u32::MAX, 0], &paid)?;
                let delivered = i64::from(n) <= delivered_at_first(i64::from(orders));
                order(t, (w, d, n), delivered, scale, seed)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The first order of a customer, under the customer's number.
fn order(
    t: &dyn crate::stores::transactions::Transaction,
    (w, d, n): (u32, u32, u32),
    delivered: bool,
    scale: Scale,
    seed: u64,
) -> Result<()> {
    let mut random = Random::new(seed ^ u64::from(w) << 48 ^ u64::from(d) << 32 ^ u64::from(n));
    let lines = 5 + random.below(11) as u32;
    let (carrier, at) = if delivered { (1, 1) } else { (0, 0) };
    let row = Table::Order.row(&[i64::from(n), carrier, i64::from(lines)]);
    Table::Order.put(t, &[w, d, n], &row)?;
    Table::OrderByCustomer.put(t, &[w, d, n, u32::MAX - n], &Table::OrderByCustomer.row(&[]))?;
    if !delivered {
        Table::NewOrder.put(t, &[w, d, n], &Table::NewOrder.row(&[]))?;
    }
    for number in 1..=lines {
        let item = 1 + random.below(u64::from(scale.items)) as i64;
        // What is delivered at the start has no price, so balances add up.
        let amount = if delivered { 0 } else { 1 + random.below(999_999) as i64 };
        let row = Table::OrderLine.row(&[item, at, amount]);
        Table::OrderLine.put(t, &[w, d, n, number], &row)?;
    }
    Ok(())
}
