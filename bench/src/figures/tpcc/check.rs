//! The consistency conditions of the standard (clause 3.3.2), over all rows.
//!
//! Condition 11 is one of the population: of a district's orders 2100 are not new. With deliveries
//! there are as many more, and each is counted with its customer; in this form it holds at any
//! time.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::load::delivered_at_first;
use super::schema::{Table, customer, district, history, line, order, warehouse};
use crate::stores::transactions::{Transaction, Transactional};

/// What the rows of a district add up to.
#[derive(Clone, Debug, Default)]
struct District {
    ytd: i64,
    next_order: i64,
    paid: i64,
    customers: i64,
    deliveries: i64,
    orders: i64,
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

/// What does not hold, in words.
#[derive(Debug, Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

/// Checks conditions 1 to 12; the error names all that do not hold.
pub(super) fn check(store: &dyn Transactional) -> Result<()> {
    let transaction = store.begin()?;
    let t = &*transaction;
    let mut wrong = Wrong::default();
    let districts = districts(t)?;
    let mut warehouses: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for ((w, d), sums) in &districts {
        let (ytd, paid) = warehouses.entry(*w).or_default();
        (*ytd, *paid) = (*ytd + sums.ytd, *paid + sums.paid);
        check_orders((*w, *d), sums, &mut wrong);
        check_money((*w, *d), sums, &mut wrong);
    }
    Table::Warehouse.scan(t, &[], &mut |key, row| {
        let (w, has) = (key[0], row.at(warehouse::YTD));
        let (ytd, paid) = warehouses.get(&w).copied().unwrap_or_default();
        wrong.unless(has == ytd, || {
            format!("condition 1: warehouse {w} has {has}, its districts {ytd}")
        });
        wrong.unless(has == paid, || {
            format!("condition 8: warehouse {w} has {has}, its history {paid}")
        });
        true
    })?;
    customers(t, &mut wrong)?;
    ensure!(wrong.0.is_empty(), "{}", wrong.0.join("; "));
    Ok(())
}

fn districts(t: &dyn Transaction) -> Result<BTreeMap<(u32, u32), District>> {
    let mut all: BTreeMap<(u32, u32), District> = BTreeMap::new();
    Table::District.scan(t, &[], &mut |key, row| {
        let own = all.entry((key[0], key[1])).or_default();
        (own.ytd, own.next_order) = (row.at(district::YTD), row.at(district::NEXT_ORDER));
        true
    })?;
    Table::Customer.scan(t, &[], &mut |key, row| {
        let own = all.entry((key[0], key[1])).or_default();
        own.customers += 1;
        own.deliveries += row.at(customer::DELIVERIES);
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
        own.orders += 1;
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

/// Conditions 2 to 7 and 11.
fn check_orders(at: (u32, u32), own: &District, wrong: &mut Wrong) {
    let (open, new) = (&own.without_carrier, &own.new_orders);
    let (said, last) = (own.next_order - 1, own.last_order);
    let newest = new.last().copied().unwrap_or(said);
    wrong.unless(said == last && said == newest, || {
        format!("condition 2: {at:?} says {said}, the last order is {last}, the newest {newest}")
    });
    if let (Some(first), Some(last)) = (new.first(), new.last()) {
        let count = new.len() as i64;
        wrong.unless(last - first + 1 == count, || {
            format!("condition 3: the new orders {first} to {last} of {at:?} are {count}")
        });
    }
    let (said, there) = (own.orders_say_lines, own.lines);
    wrong.unless(said == there, || {
        format!("condition 4: orders of {at:?} say {said} lines, there are {there}")
    });
    wrong.unless(open == new, || {
        format!("condition 5: orders of {at:?} without a carrier are not the new ones")
    });
    let odd = own.line_counts.iter().find(|(_, lines)| lines.said != lines.there);
    wrong.unless(odd.is_none(), || format!("condition 6: an order of {at:?}: {odd:?}"));
    let odd = own.line_counts.iter().find(|(o, lines)| {
        let open = if open.binary_search(o).is_ok() { lines.there } else { 0 };
        lines.undelivered != open
    });
    wrong.unless(odd.is_none(), || {
        format!("condition 7: an order of {at:?} is delivered in part: {odd:?}")
    });
    let delivered = own.orders - new.len() as i64;
    let (at_first, since) = (delivered_at_first(own.customers), own.deliveries);
    wrong.unless(delivered == at_first + since, || {
        format!(
            "condition 11: {delivered} orders of {at:?} are not new, {at_first} were so at first \
             and {since} were delivered"
        )
    });
}

/// Condition 9.
fn check_money(at: (u32, u32), own: &District, wrong: &mut Wrong) {
    let (ytd, paid) = (own.ytd, own.paid);
    wrong.unless(ytd == paid, || {
        format!("condition 9: district {at:?} has {ytd}, its history {paid}")
    });
}

/// Conditions 10 and 12: what customers owe is what was delivered less what they paid.
fn customers(t: &dyn Transaction, wrong: &mut Wrong) -> Result<()> {
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
    Table::Customer.scan(t, &[], &mut |key, row| {
        let who = (key[0], key[1], key[2]);
        let of = |sums: &BTreeMap<Who, i64>| sums.get(&who).copied().unwrap_or(0);
        let (balance, ytd) = (row.at(customer::BALANCE), row.at(customer::YTD_PAYMENT));
        wrong.unless(balance == of(&delivered) - of(&paid), || {
            format!("condition 10: customer {who:?} has a balance of {balance}")
        });
        wrong.unless(balance + ytd == of(&delivered), || {
            format!("condition 12: customer {who:?} has paid {ytd}")
        });
        true
    })
}
