//! The statements of a seed.

use super::foreign;
use super::kinds::{KINDS, Kind};

/// Sessions: two that write, and one that reads.
pub(super) const SESSIONS: usize = 3;
const READER: usize = 2;

/// Rows of the large table, and of which others choose.
const MANY: usize = 20_000;
const FEW: usize = 60;

/// A statement, and the session that sends it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) session: usize,
    pub(super) statement: String,
}

/// Numbers from a seed (splitmix64).
pub(super) struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// A column of a table.
struct Column {
    name: String,
    kind: &'static Kind,
}

struct Table {
    name: String,
    columns: Vec<Column>,
    /// Indexes that were added, by name.
    keys: Vec<String>,
    /// How many unique ones it had, if none failed or was dropped.
    uniques: usize,
    /// The session that writes to it.
    owner: usize,
    /// Ids are below this, and no two rows have the same one.
    ids: usize,
    has_key: bool,
}

impl Table {
    /// An order that has one result: rows that tie are the same.
    fn order(&self) -> String {
        let all: Vec<String> = (1..=self.columns.len() + 1).map(|n| n.to_string()).collect();
        all.join(", ")
    }

    fn selected(&self) -> String {
        let shown = |column: &Column| match column.kind.name {
            "BIT(11)" | "VARBINARY(12)" | "BINARY(4)" | "BLOB" => format!("HEX({})", column.name),
            _ => column.name.clone(),
        };
        let all: Vec<String> = self.columns.iter().map(shown).collect();
        format!("id, {}", all.join(", "))
    }
}

/// Statements of a seed, for sessions that go on where they were after each of them.
pub(super) fn script(seed: u64, statements: usize) -> Vec<Step> {
    let mut numbers = Numbers(seed);
    let mut steps = Vec::new();
    let mut tables: Vec<Table> = vec![large(&mut numbers, &mut steps)];
    foreign::create(&mut numbers, &mut steps);
    let mut serial = 0;
    while steps.len() < statements {
        if tables.len() < 4 || numbers.one_in(60) {
            serial += 1;
            if tables.len() >= 5 {
                let gone = tables.remove(1);
                define(&mut steps, &gone, format!("DROP TABLE {}", gone.name));
            }
            let (table, statement) = create(&mut numbers, serial);
            define(&mut steps, &table, statement);
            tables.push(table);
            continue;
        }
        let at = numbers.below(tables.len());
        match numbers.below(25) {
            0..=6 => change(&mut steps, &tables[at], &insert(&mut numbers, &tables[at])),
            7..=9 => change(&mut steps, &tables[at], &update(&mut numbers, &tables[at])),
            10 => change(&mut steps, &tables[at], &delete(&mut numbers, &tables[at])),
            11..=14 => add(&mut steps, tables[at].owner, select(&mut numbers, &tables[at])),
            15 | 16 => {
                // It would lock rows of others.
                let statement = select(&mut numbers, &tables[at]).replace(" FOR UPDATE", "");
                add(&mut steps, READER, statement);
            }
            17 => add(&mut steps, READER, join(&mut numbers, &tables)),
            18 => add(&mut steps, numbers.below(READER), transaction(&mut numbers)),
            19 | 20 => add(&mut steps, READER, view(&mut numbers)),
            22..=24 => foreign::step(&mut numbers, &mut steps),
            _ => {
                let statement = alter(&mut numbers, &mut tables[at], &mut serial);
                define(&mut steps, &tables[at], statement);
            }
        }
    }
    for session in 0..SESSIONS {
        add(&mut steps, session, "COMMIT".into());
    }
    for table in &tables {
        let (selected, order) = (table.selected(), table.order());
        let all = format!("SELECT {selected} FROM {} ORDER BY {order}", table.name);
        let sum = format!("SELECT COUNT(*), SUM(id) FROM {}", table.name);
        add(&mut steps, READER, if table.ids == FEW { all } else { sum });
        add(&mut steps, READER, format!("CHECK TABLE {}", table.name));
    }
    foreign::end(&mut steps);
    steps
}

pub(super) fn add(steps: &mut Vec<Step>, session: usize, statement: String) {
    steps.push(Step { session, statement });
}

/// A change of rows, with what the server counts.
fn change(steps: &mut Vec<Step>, table: &Table, statement: &str) {
    add(steps, table.owner, change_of(statement));
}

pub(super) fn change_of(statement: &str) -> String {
    format!("{statement}; SELECT ROW_COUNT(), @@warning_count; SHOW WARNINGS")
}

/// A change of a definition. It would wait for a transaction that has read the table.
fn define(steps: &mut Vec<Step>, table: &Table, statement: String) {
    add(steps, READER, "COMMIT".into());
    add(steps, table.owner, statement);
}

/// A table that the region and level 1 do not hold.
fn large(numbers: &mut Numbers, steps: &mut Vec<Step>) -> Table {
    let columns: Vec<Column> = (0..4)
        .map(|n| Column { name: format!("c{n}"), kind: &KINDS[numbers.below(KINDS.len())] })
        .collect();
    let key = numbers.pick(&["id INT PRIMARY KEY", "id INT, PRIMARY KEY (id DESC)"]);
    let (mut definition, mut values) = (key.to_owned(), String::from("seq"));
    for column in &columns {
        definition.push_str(&format!(", {} {}", column.name, column.kind.name));
        // Values come again and again, in another order in each column.
        let (prime, all) = (7 + 4 * numbers.below(9), column.kind.values);
        let which = format!("1 + seq * {prime} DIV 3 % {}", all.len() + 1);
        values.push_str(&format!(", ELT({which}, {})", all.join(", ")));
    }
    definition.push_str(", pad VARCHAR(60) DEFAULT 'what fills a row up to some length'");
    for n in 0..2 {
        definition.push_str(&format!(", KEY k{n} ({})", parts(numbers, &columns)));
    }
    let table = Table {
        name: "large".into(),
        columns,
        keys: Vec::new(),
        uniques: 0,
        owner: 0,
        ids: MANY,
        has_key: true,
    };
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    define(steps, &table, format!("CREATE TABLE large ({definition}) DEFAULT CHARSET=utf8mb4"));
    let names = names.join(", ");
    let fill = format!("INSERT INTO large (id, {names}) SELECT {values} FROM seq_1_to_{MANY}");
    change(steps, &table, &fill);
    table
}

/// Makes a table with an id: a primary key, AUTO_INCREMENT or not, or no key at all.
fn create(numbers: &mut Numbers, serial: usize) -> (Table, String) {
    let name = format!("t{serial}");
    let columns: Vec<Column> = (0..2 + numbers.below(4))
        .map(|n| Column { name: format!("c{n}"), kind: &KINDS[numbers.below(KINDS.len())] })
        .collect();
    let mut definition = match numbers.below(4) {
        0 => String::from("id INT"),
        1 => String::from("id INT AUTO_INCREMENT PRIMARY KEY"),
        2 => String::from("id INT, PRIMARY KEY (id DESC)"),
        _ => String::from("id INT PRIMARY KEY"),
    };
    for column in &columns {
        definition.push_str(&format!(", {} {}", column.name, column.kind.name));
    }
    if numbers.one_in(3) {
        definition.push_str(", v INT AS (id % 7) VIRTUAL, KEY kv (v)");
    }
    let mut uniques = 0;
    for n in 0..numbers.below(4) {
        let unique = if numbers.one_in(3) { "UNIQUE " } else { "" };
        uniques += usize::from(!unique.is_empty());
        let parts = parts(numbers, &columns);
        definition.push_str(&format!(", {unique}KEY k{n} ({parts})"));
    }
    let partitions = if numbers.one_in(8) && !definition.contains("UNIQUE") {
        " PARTITION BY HASH(id) PARTITIONS 3"
    } else {
        ""
    };
    let charset = "DEFAULT CHARSET=utf8mb4";
    let statement = format!("CREATE TABLE {name} ({definition}) {charset}{partitions}");
    let has_key = definition.contains("PRIMARY");
    let (keys, owner) = (Vec::new(), serial % READER);
    (Table { name, columns, keys, uniques, owner, ids: FEW, has_key }, statement)
}

/// Parts of an index.
fn parts(numbers: &mut Numbers, columns: &[Column]) -> String {
    let first = numbers.below(columns.len());
    let count = 1 + numbers.below(2.min(columns.len()));
    let of_columns: Vec<String> = (0..count)
        .map(|n| {
            let column = &columns[(first + n) % columns.len()];
            let prefix = column.kind.prefix.map_or_else(String::new, |n| format!("({n})"));
            let way = if numbers.one_in(4) { " DESC" } else { "" };
            format!("{}{prefix}{way}", column.name)
        })
        .collect();
    of_columns.join(", ")
}

fn value(numbers: &mut Numbers, column: &Column) -> String {
    if numbers.one_in(8) { "NULL".into() } else { numbers.pick(column.kind.values).to_owned() }
}

fn insert(numbers: &mut Numbers, table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let how = numbers.pick(&["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"]);
    // A statement may reserve more numbers than it uses. InnoDB forgets these at a restart.
    let count = 1 + numbers.below(4);
    let rows: Vec<String> = (0..count)
        .map(|_| {
            let mut row = numbers.below(table.ids).max(usize::from(count > 1)).to_string();
            for column in &table.columns {
                row.push_str(&format!(", {}", value(numbers, column)));
            }
            format!("({row})")
        })
        .collect();
    let tail = if how == "INSERT" && numbers.one_in(5) {
        let column = &table.columns[numbers.below(table.columns.len())];
        match value(numbers, column) {
            // The server counts a row that is NULL there already for InnoDB alone.
            null if null == "NULL" => String::new(),
            value => format!(" ON DUPLICATE KEY UPDATE {} = {value}", column.name),
        }
    } else {
        String::new()
    };
    format!("{how} INTO {} (id, {}) VALUES {}{tail}", table.name, names.join(", "), rows.join(", "))
}

fn condition(numbers: &mut Numbers, table: &Table) -> String {
    let column = &table.columns[numbers.below(table.columns.len())];
    let name = &column.name;
    match numbers.below(9) {
        0 => format!("id = {}", numbers.below(table.ids)),
        1 => {
            let half = table.ids / 2;
            format!("id BETWEEN {} AND {}", numbers.below(half), half + numbers.below(half))
        }
        2 => format!("{name} IS NULL"),
        3 => format!("{name} = {}", numbers.pick(column.kind.values)),
        4 => format!("{name} > {}", numbers.pick(column.kind.values)),
        5 => format!("{name} <= {}", numbers.pick(column.kind.values)),
        // Where the server reads an index, two values that differ in spaces at their end are one.
        6 if !column.kind.name.contains("nopad") => {
            let values = (numbers.pick(column.kind.values), numbers.pick(column.kind.values));
            format!("{name} BETWEEN {} AND {}", values.0, values.1)
        }
        7 => {
            let values = (numbers.pick(column.kind.values), numbers.pick(column.kind.values));
            format!("{name} IN ({}, {})", values.0, values.1)
        }
        _ => {
            let most = numbers.below(table.ids);
            format!("{name} >= {} AND id < {most}", numbers.pick(column.kind.values))
        }
    }
}

/// A condition that some hundred rows have, at most.
fn narrow(numbers: &mut Numbers, table: &Table) -> String {
    let (condition, from) = (condition(numbers, table), numbers.below(table.ids));
    if table.ids == FEW {
        return condition;
    }
    format!("{condition} AND id BETWEEN {from} AND {}", from + 300)
}

fn update(numbers: &mut Numbers, table: &Table) -> String {
    let column = &table.columns[numbers.below(table.columns.len())];
    let set = match numbers.below(6) {
        0 => format!("id = id + {}", 1 + numbers.below(3)),
        _ => format!("{} = {}", column.name, value(numbers, column)),
    };
    let ignore = if numbers.one_in(4) { "IGNORE " } else { "" };
    let order: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    // Which row comes first decides which one fails.
    format!(
        "UPDATE {ignore}{} SET {set} WHERE {} ORDER BY id, {}",
        table.name,
        narrow(numbers, table),
        order.join(", ")
    )
}

fn delete(numbers: &mut Numbers, table: &Table) -> String {
    format!("DELETE FROM {} WHERE {}", table.name, narrow(numbers, table))
}

fn select(numbers: &mut Numbers, table: &Table) -> String {
    let (selected, order) = (table.selected(), table.order());
    let condition = condition(numbers, table);
    let Column { name: column, kind } = &table.columns[numbers.below(table.columns.len())];
    if table.has_key && numbers.one_in(2) {
        // The id makes the order one of the rows, and an index has it behind its columns. Where the
        // server sorts, two values that differ in zeros at their end are one, and so are texts that
        // differ behind `max_sort_length`.
        let way = numbers.pick(&["", " DESC"]);
        let is_cut = kind.name.contains("nopad") || kind.name == "TEXT";
        let is_short = numbers.one_in(3) || is_cut;
        let first = if is_short { String::new() } else { format!("{column}{way}, ") };
        return format!(
            "SELECT {selected} FROM {} WHERE {condition} ORDER BY {first}id{way} LIMIT {}",
            table.name,
            1 + numbers.below(40)
        );
    }
    let condition = if table.ids == FEW { condition } else { narrow(numbers, table) };
    match numbers.below(6) {
        0 => format!(
            "SELECT COUNT(*), MIN({column}) IS NULL, MAX(id) FROM {} WHERE {condition}",
            table.name
        ),
        1 => format!("SELECT COUNT(DISTINCT {column}) FROM {} WHERE {condition}", table.name),
        2 => format!("SELECT MIN(id), MAX(id) FROM {}", table.name),
        3 => format!(
            "SELECT {selected} FROM {} WHERE {condition} ORDER BY {order} FOR UPDATE",
            table.name
        ),
        _ => format!("SELECT {selected} FROM {} WHERE {condition} ORDER BY {order}", table.name),
    }
}

fn join(numbers: &mut Numbers, tables: &[Table]) -> String {
    let (one, two) = (numbers.below(tables.len()), numbers.below(tables.len()));
    let kind = numbers.pick(&["JOIN", "LEFT JOIN"]);
    format!(
        "SELECT COUNT(*), SUM(a.id), SUM(b.id) FROM {} a {kind} {} b ON a.id = b.id \
         WHERE a.id > {}",
        tables[one].name,
        tables[two].name,
        numbers.below(40)
    )
}

fn transaction(numbers: &mut Numbers) -> String {
    numbers
        .pick(&[
            "BEGIN",
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "SAVEPOINT a",
            "SAVEPOINT b",
            "ROLLBACK TO SAVEPOINT a",
            "ROLLBACK TO SAVEPOINT b",
            "RELEASE SAVEPOINT a",
            "RELEASE SAVEPOINT b",
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ])
        .to_owned()
}

/// What the reader does with its view. Without a transaction each statement has its own.
fn view(numbers: &mut Numbers) -> String {
    numbers
        .pick(&[
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            // A first statement that reads no row begins InnoDB's view alone.
            "BEGIN; SELECT COUNT(*) FROM large WHERE id = 1",
            "COMMIT",
        ])
        .to_owned()
}

fn alter(numbers: &mut Numbers, table: &mut Table, serial: &mut usize) -> String {
    let name = table.name.clone();
    *serial += 1;
    match numbers.below(10) {
        0 => {
            let kind = &KINDS[numbers.below(KINDS.len())];
            let column = Column { name: format!("c{serial}x"), kind };
            let statement = format!("ALTER TABLE {name} ADD COLUMN {} {}", column.name, kind.name);
            // A column of NULLs, and one with a value for the rows that are there.
            let statement = match kind.prefix {
                None if numbers.one_in(2) && !kind.name.contains("NULL") => {
                    format!("{statement} DEFAULT {}", numbers.pick(kind.values))
                }
                _ => statement,
            };
            table.columns.push(column);
            statement
        }
        1 => {
            let key = format!("a{serial}");
            let parts = parts(numbers, &table.columns);
            table.keys.push(key.clone());
            format!("ALTER TABLE {name} ADD KEY {key} ({parts})")
        }
        2 => {
            let key = format!("u{serial}");
            let parts = parts(numbers, &table.columns);
            table.keys.push(key.clone());
            table.uniques += 1;
            format!("ALTER TABLE {name} ADD UNIQUE KEY {key} ({parts})")
        }
        3 => format!("ALTER TABLE {name} FORCE"),
        5 if !table.keys.is_empty() => {
            let at = numbers.below(table.keys.len());
            // One whose values were there twice was not made.
            format!("ALTER TABLE {name} DROP KEY IF EXISTS {}", table.keys.swap_remove(at))
        }
        6 if !table.keys.is_empty() => {
            let at = numbers.below(table.keys.len());
            let new = format!("m{serial}");
            let old = std::mem::replace(&mut table.keys[at], new.clone());
            format!("ALTER TABLE {name} RENAME KEY IF EXISTS {old} TO {new}")
        }
        7 => {
            let at = numbers.below(table.columns.len());
            let new = format!("n{serial}");
            let old = std::mem::replace(&mut table.columns[at].name, new.clone());
            format!("ALTER TABLE {name} RENAME COLUMN {old} TO {new}")
        }
        8 if table.uniques > 1 => format!("ALTER TABLE {name} FORCE"),
        8 => format!("OPTIMIZE TABLE {name}"),
        9 if table.columns.len() > 1 => {
            let at = numbers.below(table.columns.len());
            // A column of an index that others have too is refused.
            let gone = table.columns.remove(at);
            let how = if table.uniques > 1 { ", ALGORITHM=COPY" } else { "" };
            format!("ALTER TABLE {name} DROP COLUMN {}{how}", gone.name)
        }
        4 => {
            table.name = format!("r{serial}");
            format!("RENAME TABLE {name} TO {}", table.name)
        }
        _ if numbers.one_in(4) && table.uniques < 2 && table.ids == FEW => {
            format!("TRUNCATE TABLE {name}")
        }
        _ => format!("ANALYZE TABLE {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{READER, script};

    #[test]
    fn a_seed_gives_one_script() {
        assert_eq!(script(7, 200), script(7, 200));
        assert_ne!(script(7, 200), script(8, 200));
        assert!(script(7, 200).len() > 200);
    }

    #[test]
    fn sessions_write_to_tables_of_their_own() {
        let steps = script(7, 1000);
        for session in 0..=READER {
            assert!(steps.iter().filter(|step| step.session == session).count() > 100);
        }
        let writes = |statement: &str| statement.contains("ROW_COUNT");
        assert!(!steps.iter().any(|step| step.session == READER && writes(&step.statement)));
    }
}
