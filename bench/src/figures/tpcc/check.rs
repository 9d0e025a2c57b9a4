//! The consistency conditions of the standard (clause 3.3.2), over all rows.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::schema::{Table, customer, district, history, line, order, warehouse};
use crate::stores::transactions::{Transaction, Transactional};

/// What the rows of a district add up to.
#[derive(Clone, Debug, Default)]
struct District {
    ytd: i64,
    next_order: i64,
    paid: i64,
    last_order: i64,
    orders_say_lines: i64,
    lines: i64,
    new_orders: Vec<i64>,
    without_carrier: Vec<i64>,
    line_counts: BTreeMap<i64, Lines>,
}

/// Lines of an order: as it says, as they are, and those not delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    said: i64,
    there: i64,
    undelivered: i64,
}

/// A customer's number with its district's and its warehouse's.
type Who = (u32, u32, u32);

/// Checks conditions 1 to 10 and 12.
pub(super) fn check(store: &dyn Transactional) -> Result<()> {
    let transaction = store.begin()?;
    let t = &*transaction;
    let districts = districts(t)?;
    let mut warehouses: BTreeMap<u32, i64> = BTreeMap::new();
    for ((w, d), sums) in &districts {
        *warehouses.entry(*w).or_default() += sums.ytd;
        check_district((*w, *d), sums)?;
    }
    let mut wrong = None;
    Table::Warehouse.scan(t, &[], &mut |key, row| {
        let (sum, ytd) = (warehouses.get(&key[0]).copied(), row.at(warehouse::YTD));
        wrong = (sum != Some(ytd)).then(|| (key[0], ytd, sum));
        wrong.is_none()
    })?;
    ensure!(wrong.is_none(), "condition 1: a warehouse and its districts: {wrong:?}");
    customers(t)
}

fn districts(t: &dyn Transaction) -> Result<BTreeMap<(u32, u32), District>> {
    let mut all: BTreeMap<(u32, u32), District> = BTreeMap::new();
    Table::District.scan(t, &[], &mut |key, row| {
        let own = all.entry((key[0], key[1])).or_default();
        (own.ytd, own.next_order) = (row.at(district::YTD), row.at(district::NEXT_ORDER));
        true
    })?;
    Table::History.scan(t, &[], &mut |_, row| {
        let at = (row.at(history::WAREHOUSE) as u32, row.at(history::DISTRICT) as u32);
        all.entry(at).or_default().paid += row.at(history::AMOUNT);
        true
    })?;
    Table::NewOrder.scan(t, &[], &mut |key, _| {
        all.entry((key[0], key[1])).or_default().new_orders.push(i64::from(key[2]));
        true
    })?;
    Table::Order.scan(t, &[], &mut |key, row| {
        let (own, o) = (all.entry((key[0], key[1])).or_default(), i64::from(key[2]));
        own.last_order = own.last_order.max(o);
        own.orders_say_lines += row.at(order::LINES);
        own.line_counts.entry(o).or_default().said = row.at(order::LINES);
        if row.at(order::CARRIER) == 0 {
            own.without_carrier.push(o);
        }
        true
    })?;
    Table::OrderLine.scan(t, &[], &mut |key, row| {
        let (own, o) = (all.entry((key[0], key[1])).or_default(), i64::from(key[2]));
        own.lines += 1;
        let lines = own.line_counts.entry(o).or_default();
        lines.there += 1;
        lines.undelivered += i64::from(row.at(line::DELIVERED) == 0);
        true
    })?;
    Ok(all)
}

fn check_district(at: (u32, u32), own: &District) -> Result<()> {
    let last = own.next_order - 1;
    let newest = own.new_orders.last().copied().unwrap_or(last);
    ensure!(
        last == own.last_order && last == newest,
        "condition 2: district {at:?} says {last}, the last order is {}, the newest {newest}",
        own.last_order
    );
    if let (Some(first), Some(last)) = (own.new_orders.first(), own.new_orders.last()) {
        let count = own.new_orders.len() as i64;
        ensure!(last - first + 1 == count, "condition 3: {first} to {last} in {at:?} are {count}");
    }
    ensure!(
        own.orders_say_lines == own.lines,
        "condition 4: orders of {at:?} say {} lines, there are {}",
        own.orders_say_lines,
        own.lines
    );
    let (open, new) = (&own.without_carrier, &own.new_orders);
    ensure!(open == new, "condition 5: orders of {at:?} without a carrier are not the new ones");
    let wrong = own.line_counts.iter().find(|(_, lines)| lines.said != lines.there);
    ensure!(wrong.is_none(), "condition 6: an order of {at:?}: {wrong:?}");
    let wrong = own.line_counts.iter().find(|(o, lines)| {
        let open = if new.binary_search(o).is_ok() { lines.there } else { 0 };
        lines.undelivered != open
    });
    ensure!(wrong.is_none(), "condition 7: an order of {at:?} is delivered in part: {wrong:?}");
    let (ytd, paid) = (own.ytd, own.paid);
    // With condition 1 this is condition 8 too.
    ensure!(ytd == paid, "condition 9: district {at:?} has {ytd}, its history {paid}");
    Ok(())
}

/// Conditions 10 and 12: what customers owe is what was delivered less what they paid.
fn customers(t: &dyn Transaction) -> Result<()> {
    let mut owners: BTreeMap<Who, u32> = BTreeMap::new();
    Table::Order.scan(t, &[], &mut |key, row| {
        owners.insert((key[0], key[1], key[2]), row.at(order::CUSTOMER) as u32);
        true
    })?;
    let (mut delivered, mut paid): (BTreeMap<Who, i64>, BTreeMap<Who, i64>) = Default::default();
    Table::OrderLine.scan(t, &[], &mut |key, row| {
        if let Some(c) = owners.get(&(key[0], key[1], key[2]))
            && row.at(line::DELIVERED) != 0
        {
            *delivered.entry((key[0], key[1], *c)).or_default() += row.at(line::AMOUNT);
        }
        true
    })?;
    Table::History.scan(t, &[], &mut |key, row| {
        *paid.entry((key[0], key[1], key[2])).or_default() += row.at(history::AMOUNT);
        true
    })?;
    let mut wrong = None;
    Table::Customer.scan(t, &[], &mut |key, row| {
        let who = (key[0], key[1], key[2]);
        let of = |sums: &BTreeMap<Who, i64>| sums.get(&who).copied().unwrap_or(0);
        let (balance, ytd) = (row.at(customer::BALANCE), row.at(customer::YTD_PAYMENT));
        if balance != of(&delivered) - of(&paid) {
            wrong = Some(format!("condition 10: customer {who:?} has a balance of {balance}"));
        } else if balance + ytd != of(&delivered) {
            wrong = Some(format!("condition 12: customer {who:?} has paid {ytd}"));
        }
        wrong.is_none()
    })?;
    ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    Ok(())
}
