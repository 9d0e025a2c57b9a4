//! The five transactions (clause 2 of the standard), and a terminal that does them in their shares,
//! one after the other, without keying or thinking.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Scale;
use super::load::{DISTRICTS, NAMES};
use super::schema::{Row, Table, customer, district, line, order, stock, warehouse};
use crate::random::Random;
use crate::stores::transactions::{Transaction, Transactional, run};

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock level",
        }
    }
}

/// A new order names an item that does not exist, and is rolled back (clause 2.4.2.3).
#[derive(Debug)]
struct UnusedItem;

impl std::fmt::Display for UnusedItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an unused item number")
    }
}

impl std::error::Error for UnusedItem {}

/// One of the clients, at home in one warehouse.
pub(super) struct Terminal<'a> {
    store: &'a dyn Transactional,
    scale: Scale,
    random: Random,
    number: u32,
    home: u32,
    /// Payments so far: the last part of a history row's key.
    payments: u32,
    /// Of the run, so that choices that repeat differ between runs (clause 2.1.6).
    constant: u64,
}

/// What a new order asks for.
struct Wanted {
    item: u32,
    from: u32,
    quantity: i64,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(store: &'a dyn Transactional, scale: Scale, number: u32, seed: u64) -> Self {
        let random = Random::new(seed ^ u64::from(number + 1) << 40);
        let home = 1 + number % scale.warehouses;
        Terminal { store, scale, random, number, home, payments: 0, constant: seed % 8191 }
    }

    /// Does one transaction of the mix: its kind, and how often it ran again.
    pub(super) fn next(&mut self) -> Result<(Kind, u64)> {
        let kind = match self.random.below(100) {
            0..45 => Kind::NewOrder,
            45..88 => Kind::Payment,
            88..92 => Kind::OrderStatus,
            92..96 => Kind::Delivery,
            _ => Kind::StockLevel,
        };
        let again = match kind {
            Kind::NewOrder => self.new_order()?,
            Kind::Payment => self.payment()?,
            Kind::OrderStatus => self.order_status()?,
            Kind::Delivery => self.delivery()?,
            Kind::StockLevel => self.stock_level()?,
        };
        Ok((kind, again))
    }

    fn up_to(&mut self, most: u32) -> u32 {
        1 + self.random.below(u64::from(most)) as u32
    }

    /// The standard's skewed choice from 1 to `most`.
    fn skewed(&mut self, a: u64, most: u32) -> u32 {
        let both = self.random.below(a + 1) | self.random.below(u64::from(most));
        1 + ((both + self.constant) % u64::from(most)) as u32
    }

    /// Another warehouse, if there is one.
    fn remote(&mut self) -> u32 {
        let other = 1 + self.random.below(u64::from(self.scale.warehouses.max(2) - 1)) as u32;
        if self.scale.warehouses == 1 { 1 } else { other + u32::from(other >= self.home) }
    }

    fn new_order(&mut self) -> Result<u64> {
        let (w, d) = (self.home, self.up_to(DISTRICTS));
        let c = self.skewed(1023, self.scale.customers);
        let mut wanted: Vec<Wanted> = (0..5 + self.random.below(11))
            .map(|_| {
                let from = if self.random.below(100) == 0 { self.remote() } else { w };
                let item = self.skewed(8191, self.scale.items);
                Wanted { item, from, quantity: 1 + self.random.below(10) as i64 }
            })
            .collect();
        // In one order for all terminals, so that no two wait in a circle.
        wanted.sort_by_key(|wanted| (wanted.from, wanted.item));
        wanted.dedup_by_key(|wanted| (wanted.from, wanted.item));
        if self.random.below(100) == 0 {
            wanted.push(Wanted { item: self.scale.items + 1, from: w, quantity: 1 });
        }
        match run(self.store, |t| place_order(t, (w, d, c), &wanted)) {
            Ok(((), again)) => Ok(again),
            Err(e) if e.is::<UnusedItem>() => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn payment(&mut self) -> Result<u64> {
        let (w, d) = (self.home, self.up_to(DISTRICTS));
        let (cw, cd) = match self.random.below(100) {
            0..85 => (w, d),
            _ => (self.remote(), self.up_to(DISTRICTS)),
        };
        let amount = 100 + self.random.below(499_901) as i64;
        let by_name = self.random.below(100) < 60;
        let name = self.skewed(255, NAMES) - 1;
        let number = self.skewed(1023, self.scale.customers);
        self.payments += 1;
        let unique = [self.number, self.payments];
        let ((), again) = run(self.store, |t| {
            let mut row = Table::Warehouse.lock(t, &[w])?;
            row.add(warehouse::YTD, amount);
            Table::Warehouse.put(t, &[w], &row)?;
            let mut row = Table::District.lock(t, &[w, d])?;
            row.add(district::YTD, amount);
            Table::District.put(t, &[w, d], &row)?;
            let named = if by_name { named(t, (cw, cd), name)? } else { None };
            let c = named.unwrap_or(number);
            let mut row = Table::Customer.lock(t, &[cw, cd, c])?;
            row.add(customer::BALANCE, -amount);
            row.add(customer::YTD_PAYMENT, amount);
            row.add(customer::PAYMENTS, 1);
            Table::Customer.put(t, &[cw, cd, c], &row)?;
            let row = Table::History.row(&[amount, i64::from(w), i64::from(d)]);
            Table::History.put(t, &[cw, cd, c, unique[0], unique[1]], &row)
        })?;
        Ok(again)
    }

    fn order_status(&mut self) -> Result<u64> {
        let (w, d) = (self.home, self.up_to(DISTRICTS));
        let by_name = self.random.below(100) < 60;
        let name = self.skewed(255, NAMES) - 1;
        let number = self.skewed(1023, self.scale.customers);
        let (lines, again) = run(self.store, |t| {
            let named = if by_name { named(t, (w, d), name)? } else { None };
            let c = named.unwrap_or(number);
            Table::Customer.get(t, &[w, d, c])?;
            let mut last = None;
            Table::OrderByCustomer.scan(t, &[w, d, c], &mut |key, _| {
                last = Some(u32::MAX - key[3]);
                false
            })?;
            let Some(o) = last else { bail!("customer {c} of {w}/{d} has no order") };
            Table::Order.get(t, &[w, d, o])?;
            let mut lines = 0;
            Table::OrderLine.scan(t, &[w, d, o], &mut |_, row| {
                lines += row.at(line::ITEM).signum();
                true
            })?;
            Ok(lines)
        })?;
        anyhow::ensure!(lines > 0, "an order without lines");
        Ok(again)
    }

    fn delivery(&mut self) -> Result<u64> {
        let (w, carrier) = (self.home, 1 + self.random.below(10) as i64);
        let ((), again) =
            run(self.store, |t| (1..=DISTRICTS).try_for_each(|d| deliver(t, (w, d), carrier)))?;
        Ok(again)
    }

    fn stock_level(&mut self) -> Result<u64> {
        let (w, d) = (self.home, self.up_to(DISTRICTS));
        let threshold = 10 + self.random.below(11) as i64;
        let (low, again) = run(self.store, |t| {
            let next = Table::District.get(t, &[w, d])?.at(district::NEXT_ORDER) as u32;
            let mut items = BTreeSet::new();
            for o in next.saturating_sub(20).max(1)..next {
                Table::OrderLine.scan(t, &[w, d, o], &mut |_, row| {
                    items.insert(row.at(line::ITEM) as u32);
                    true
                })?;
            }
            let mut low = 0;
            for item in items {
                let quantity = Table::Stock.get(t, &[w, item])?.at(stock::QUANTITY);
                low += u32::from(quantity < threshold);
            }
            Ok(low)
        })?;
        std::hint::black_box(low);
        Ok(again)
    }
}

/// The middle one of the customers of a last name; none if no customer has it.
fn named(t: &dyn Transaction, (w, d): (u32, u32), name: u32) -> Result<Option<u32>> {
    let mut all = Vec::new();
    Table::CustomerByName.scan(t, &[w, d, name], &mut |key, _| {
        all.push(key[3]);
        true
    })?;
    Ok(all.get(all.len().saturating_sub(1) / 2).copied())
}

fn place_order(t: &dyn Transaction, (w, d, c): (u32, u32, u32), wanted: &[Wanted]) -> Result<()> {
    let tax = Table::Warehouse.get(t, &[w])?.at(warehouse::TAX);
    let mut row = Table::District.lock(t, &[w, d])?;
    let o = row.at(district::NEXT_ORDER) as u32;
    let tax = tax + row.at(district::TAX);
    row.add(district::NEXT_ORDER, 1);
    Table::District.put(t, &[w, d], &row)?;
    let discount = Table::Customer.get(t, &[w, d, c])?.at(customer::DISCOUNT);
    let row = Table::Order.row(&[i64::from(c), 0, wanted.len() as i64]);
    Table::Order.put(t, &[w, d, o], &row)?;
    Table::NewOrder.put(t, &[w, d, o], &Table::NewOrder.row(&[]))?;
    Table::OrderByCustomer.put(t, &[w, d, c, u32::MAX - o], &Table::OrderByCustomer.row(&[]))?;
    let mut total = 0;
    for (number, wanted) in (1..).zip(wanted) {
        let Some(item) = t.get(&Table::Item.key(&[wanted.item]))? else {
            return Err(UnusedItem.into());
        };
        let price = Row::read(item).at(0);
        let mut row = Table::Stock.lock(t, &[wanted.from, wanted.item])?;
        let left = row.at(stock::QUANTITY) - wanted.quantity;
        row.set(stock::QUANTITY, if left >= 10 { left } else { left + 91 });
        row.add(stock::YTD, wanted.quantity);
        row.add(stock::ORDERS, 1);
        row.add(stock::REMOTE, i64::from(wanted.from != w));
        Table::Stock.put(t, &[wanted.from, wanted.item], &row)?;
        let amount = wanted.quantity * price;
        total += amount;
        let row = Table::OrderLine.row(&[i64::from(wanted.item), 0, amount]);
        Table::OrderLine.put(t, &[w, d, o, number], &row)?;
    }
    std::hint::black_box(total * (100 - discount) * (100 + tax));
    Ok(())
}

/// Delivers the oldest order of a district that is not, if there is one.
fn deliver(t: &dyn Transaction, (w, d): (u32, u32), carrier: i64) -> Result<()> {
    let mut oldest = None;
    Table::NewOrder.scan(t, &[w, d], &mut |key, _| {
        oldest = Some(key[2]);
        false
    })?;
    let Some(o) = oldest else { return Ok(()) };
    let key = Table::NewOrder.key(&[w, d, o]);
    if t.get_for_update(&key)?.is_none() {
        // Another terminal delivers it: this district is done for now (clause 2.7.4.2).
        return Ok(());
    }
    t.delete(&key)?;
    let mut row = Table::Order.lock(t, &[w, d, o])?;
    let c = row.at(order::CUSTOMER) as u32;
    row.set(order::CARRIER, carrier);
    Table::Order.put(t, &[w, d, o], &row)?;
    let mut lines = Vec::new();
    Table::OrderLine.scan(t, &[w, d, o], &mut |key, row| {
        lines.push((key[3], row));
        true
    })?;
    let mut sum = 0;
    for (number, mut row) in lines {
        sum += row.at(line::AMOUNT);
        row.set(line::DELIVERED, 2);
        Table::OrderLine.put(t, &[w, d, o, number], &row)?;
    }
    let mut row = Table::Customer.lock(t, &[w, d, c])?;
    row.add(customer::BALANCE, sum);
    row.add(customer::DELIVERIES, 1);
    Table::Customer.put(t, &[w, d, c], &row)
}
