//! Tables with foreign keys, and statements that change their rows.
//!
//! A parent has one action for all of its children: where one key refuses a row that another one
//! follows, the engines are meant to differ.

use super::statements::{Numbers, Step, add, change_of};

/// Rows of each table, of which statements choose.
const ROWS: usize = 12;

/// The session that writes to them.
const OWNER: usize = 1;

const ACTIONS: &[&str] = &[
    "",
    " ON DELETE CASCADE",
    " ON UPDATE CASCADE",
    " ON DELETE CASCADE ON UPDATE CASCADE",
    " ON DELETE SET NULL",
    " ON DELETE SET NULL ON UPDATE CASCADE",
    " ON DELETE CASCADE ON UPDATE SET NULL",
    " ON DELETE NO ACTION ON UPDATE SET NULL",
];

/// Each with its columns but the id. The last one refers to itself.
const TABLES: &[(&str, &[&str])] =
    &[("fp", &["u", "w"]), ("fc", &["a", "b"]), ("fg", &["a", "w"]), ("fs", &["a", "w"])];

/// Makes the tables.
pub(super) fn create(numbers: &mut Numbers, steps: &mut Vec<Step>) {
    let (of_parent, of_child, of_itself) =
        (numbers.pick(ACTIONS), numbers.pick(ACTIONS), numbers.pick(&ACTIONS[..2]));
    let unique = numbers.pick(&["UNIQUE KEY", "KEY"]);
    let key = numbers.pick(&["id INT PRIMARY KEY", "id INT UNIQUE"]);
    for statement in [
        format!("CREATE TABLE fp (id INT PRIMARY KEY, u INT, w INT, {unique} (u))"),
        format!(
            "CREATE TABLE fc ({key}, a INT, b INT, v INT AS (a * 2) VIRTUAL, KEY (v), \
             FOREIGN KEY (a) REFERENCES fp (id){of_parent}, \
             FOREIGN KEY (b) REFERENCES fp (u){of_parent})"
        ),
        format!(
            "CREATE TABLE fg (id INT PRIMARY KEY, a INT, w INT, KEY (a, w), \
             FOREIGN KEY (a) REFERENCES fc (id){of_child})"
        ),
        format!(
            "CREATE TABLE fs (id INT PRIMARY KEY, a INT, w INT, \
             FOREIGN KEY (a) REFERENCES fs (id){of_itself})"
        ),
    ] {
        add(steps, OWNER, statement);
    }
}

/// One statement.
pub(super) fn step(numbers: &mut Numbers, steps: &mut Vec<Step>) {
    let (table, columns) = TABLES[numbers.below(TABLES.len())];
    let column = columns[numbers.below(columns.len())];
    let id = numbers.below(ROWS);
    let ignore = if numbers.one_in(4) { " IGNORE" } else { "" };
    let statement = match numbers.below(10) {
        0..=3 => {
            let how = numbers.pick(&["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"]);
            let names = columns.join(", ");
            let (one, two) = (value(numbers), value(numbers));
            format!("{how} INTO {table} (id, {names}) VALUES ({id}, {one}, {two})")
        }
        4 | 5 => {
            let value = value(numbers);
            format!("UPDATE{ignore} {table} SET {column} = {value} WHERE id = {id}")
        }
        6 => {
            let by = 1 + numbers.below(ROWS);
            format!("UPDATE{ignore} {table} SET id = id + {by} WHERE id = {id}")
        }
        7 => format!("DELETE{ignore} FROM {table} WHERE id = {id}"),
        8 => format!("DELETE FROM {table} WHERE {column} = {}", value(numbers)),
        _ => {
            let off = numbers.one_in(3);
            let row = format!("INSERT IGNORE INTO {table} (id) VALUES ({id})");
            match off {
                true => format!("SET foreign_key_checks=0; {row}; SET foreign_key_checks=1"),
                false => row,
            }
        }
    };
    add(steps, OWNER, change_of(&statement));
    if numbers.one_in(4) {
        look(steps, table);
    }
}

fn value(numbers: &mut Numbers) -> String {
    if numbers.one_in(6) { "NULL".into() } else { numbers.below(ROWS).to_string() }
}

fn look(steps: &mut Vec<Step>, table: &str) {
    add(steps, OWNER, format!("SELECT * FROM {table} ORDER BY 1, 2, 3"));
}

/// All rows, and each index.
pub(super) fn end(steps: &mut Vec<Step>) {
    for (table, _) in TABLES {
        look(steps, table);
        add(steps, OWNER, format!("CHECK TABLE {table}"));
    }
}
