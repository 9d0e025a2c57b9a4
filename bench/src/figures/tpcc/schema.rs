//! The tables of the driver, all in one map: a key begins with its table. A row is some numbers and
//! as many bytes as the standard's row has beyond them.

use anyhow::{Context, Result};

use crate::stores::transactions::Transaction;

/// A table, and the parts of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    /// warehouse
    Warehouse = 1,
    /// warehouse, district
    District,
    /// warehouse, district, customer
    Customer,
    /// warehouse, district, last name, customer; no columns
    CustomerByName,
    /// warehouse, district, customer, thread, number
    History,
    /// warehouse, district, order; no columns
    NewOrder,
    /// warehouse, district, order
    Order,
    /// warehouse, district, customer, order counted down; no columns
    OrderByCustomer,
    /// warehouse, district, order, line
    OrderLine,
    /// item
    Item,
    /// warehouse, item
    Stock,
}

/// Columns of a warehouse.
pub(super) mod warehouse {
    pub(in super::super) const YTD: usize = 0;
    pub(in super::super) const TAX: usize = 1;
}

/// Columns of a district.
pub(super) mod district {
    pub(in super::super) const YTD: usize = 0;
    pub(in super::super) const TAX: usize = 1;
    pub(in super::super) const NEXT_ORDER: usize = 2;
}

/// Columns of a customer.
pub(super) mod customer {
    pub(in super::super) const BALANCE: usize = 0;
    pub(in super::super) const YTD_PAYMENT: usize = 1;
    pub(in super::super) const PAYMENTS: usize = 2;
    pub(in super::super) const DELIVERIES: usize = 3;
    pub(in super::super) const DISCOUNT: usize = 4;
}

/// Columns of a history row.
pub(super) mod history {
    pub(in super::super) const AMOUNT: usize = 0;
    pub(in super::super) const WAREHOUSE: usize = 1;
    pub(in super::super) const DISTRICT: usize = 2;
}

/// Columns of an order; a carrier of 0 is none.
pub(super) mod order {
    pub(in super::super) const CUSTOMER: usize = 0;
    pub(in super::super) const CARRIER: usize = 1;
    pub(in super::super) const LINES: usize = 2;
}

/// Columns of an order line; delivered at 0 is not at all.
pub(super) mod line {
    pub(in super::super) const ITEM: usize = 0;
    pub(in super::super) const DELIVERED: usize = 1;
    pub(in super::super) const AMOUNT: usize = 2;
}

/// Columns of a stock row.
pub(super) mod stock {
    pub(in super::super) const QUANTITY: usize = 0;
    pub(in super::super) const YTD: usize = 1;
    pub(in super::super) const ORDERS: usize = 2;
    pub(in super::super) const REMOTE: usize = 3;
}

impl Table {
    /// Bytes of a row, as the standard has them.
    fn row_len(self) -> usize {
        match self {
            Table::Warehouse => 89,
            Table::District => 95,
            Table::Customer => 655,
            Table::History => 46,
            Table::Order => 24,
            Table::OrderLine => 54,
            Table::Item => 82,
            Table::Stock => 306,
            Table::CustomerByName | Table::NewOrder | Table::OrderByCustomer => 0,
        }
    }

    /// A key, or the beginning of keys.
    pub(super) fn key(self, parts: &[u32]) -> Vec<u8> {
        let mut key = vec![self as u8];
        parts.iter().for_each(|part| key.extend_from_slice(&part.to_be_bytes()));
        key
    }

    /// A new row.
    pub(super) fn row(self, columns: &[i64]) -> Row {
        let mut bytes: Vec<u8> = columns.iter().flat_map(|column| column.to_le_bytes()).collect();
        bytes.resize(self.row_len().max(bytes.len()), b'.');
        Row(bytes)
    }

    /// A row that is there.
    pub(super) fn get(self, transaction: &dyn Transaction, parts: &[u32]) -> Result<Row> {
        let value = transaction.get(&self.key(parts))?;
        Ok(Row(value.with_context(|| format!("{self:?} {parts:?} is missing"))?))
    }

    /// A row that is there and is to be changed.
    pub(super) fn lock(self, transaction: &dyn Transaction, parts: &[u32]) -> Result<Row> {
        let value = transaction.get_for_update(&self.key(parts))?;
        Ok(Row(value.with_context(|| format!("{self:?} {parts:?} is missing"))?))
    }

    /// Puts a row.
    pub(super) fn put(self, transaction: &dyn Transaction, parts: &[u32], row: &Row) -> Result<()> {
        transaction.put(&self.key(parts), &row.0)
    }

    /// Visits the keys' parts and the rows whose keys begin with `parts`, in order, while `visit`
    /// says so.
    pub(super) fn scan(
        self,
        transaction: &dyn Transaction,
        parts: &[u32],
        visit: &mut dyn FnMut(&[u32], Row) -> bool,
    ) -> Result<()> {
        let from = self.key(parts);
        let mut to = from.clone();
        to.resize(from.len() + 64, 0xff);
        transaction.scan(&from, &to, &mut |key, value| {
            let part = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
            let parts: Vec<u32> = key[1..].chunks_exact(4).map(part).collect();
            visit(&parts, Row(value.to_vec()))
        })
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row(Vec<u8>);

impl Row {
    /// The row of a value.
    pub(super) fn read(value: Vec<u8>) -> Row {
        Row(value)
    }

    /// A column.
    pub(super) fn at(&self, column: usize) -> i64 {
        let bytes = &self.0[column * 8..][..8];
        i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Sets a column.
    pub(super) fn set(&mut self, column: usize, value: i64) {
        self.0[column * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }

    /// Adds to a column.
    pub(super) fn add(&mut self, column: usize, value: i64) {
        self.set(column, self.at(column) + value);
    }
}
