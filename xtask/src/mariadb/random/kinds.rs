//! Types of columns, and values of each.

/// A type: its name, whether an index needs a prefix, and values.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) prefix: Option<u32>,
    pub(super) values: &'static [&'static str],
}

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "INT", prefix: None, values: &["-5", "0", "1", "7", "2147483647", "-2147483648"] },
    Kind {
        name: "BIGINT UNSIGNED",
        prefix: None,
        values: &["0", "1", "18446744073709551615", "9"],
    },
    Kind { name: "TINYINT", prefix: None, values: &["-128", "127", "0", "3", "-1"] },
    Kind { name: "SMALLINT UNSIGNED", prefix: None, values: &["0", "65535", "256", "12"] },
    Kind { name: "MEDIUMINT", prefix: None, values: &["-8388608", "8388607", "0", "5"] },
    Kind {
        name: "DECIMAL(12,3)",
        prefix: None,
        values: &["-1.5", "0", "1.5", "123456789.125", "-99"],
    },
    Kind {
        name: "DOUBLE",
        prefix: None,
        values: &["-1.5e100", "0", "-0.0", "2.25", "1e-9", "3e50"],
    },
    Kind { name: "FLOAT", prefix: None, values: &["-1.5", "0", "2.25", "1024", "-3"] },
    Kind { name: "DATE", prefix: None, values: &["'2020-02-29'", "'1999-01-01'", "'2038-12-31'"] },
    Kind {
        name: "DATETIME(3)",
        prefix: None,
        values: &[
            "'2020-02-29 01:02:03.456'",
            "'1970-01-01 00:00:00'",
            "'2020-02-29 01:02:03.457'",
        ],
    },
    Kind { name: "TIME(2)", prefix: None, values: &["'-10:00:00.5'", "'00:00:01'", "'838:59:58'"] },
    Kind {
        name: "TIMESTAMP(1) NULL DEFAULT NULL",
        prefix: None,
        values: &["'2020-02-28 01:02:03.4'", "'2001-01-01 00:00:00'"],
    },
    Kind { name: "YEAR", prefix: None, values: &["1999", "2020", "0"] },
    Kind {
        name: "VARCHAR(20)",
        prefix: None,
        values: &[
            "''", "'a'", "'A'", "'a '", "'b'", "'ab'", "'\u{e4}'", "'a\\tb'", "'zz top'",
            "'\u{df}'",
        ],
    },
    Kind {
        name: "VARCHAR(30) COLLATE utf8mb4_unicode_ci",
        prefix: None,
        values: &[
            "''",
            "'a'",
            "'\u{c4}'",
            "'ss'",
            "'\u{df}'",
            "'b '",
            "'B'",
            "'a\\0'",
            "'longer text than a chunk'",
        ],
    },
    Kind {
        name: "VARCHAR(30) COLLATE utf8mb4_nopad_bin",
        prefix: None,
        values: &["''", "'a'", "'a '", "'A'", "'a\\0'", "'b'"],
    },
    Kind {
        name: "CHAR(8) COLLATE utf8mb4_general_ci",
        prefix: None,
        values: &["''", "'a'", "'A'", "'ab'", "'\u{e4}b'", "'zz'"],
    },
    Kind {
        name: "CHAR(5) COLLATE latin1_bin",
        prefix: None,
        values: &["''", "'a'", "'A'", "'ab'"],
    },
    Kind {
        name: "VARBINARY(12)",
        prefix: None,
        values: &["''", "'a'", "'a '", "'a\\0'", "x'00'", "x'ff00'"],
    },
    Kind { name: "BINARY(4)", prefix: None, values: &["'a'", "'ab'", "x'00ff'", "''"] },
    Kind {
        name: "TEXT",
        prefix: Some(10),
        values: &["''", "'a'", "REPEAT('b', 300)", "'A'", "REPEAT('b', 301)"],
    },
    Kind {
        name: "BLOB",
        prefix: Some(6),
        values: &["''", "'a'", "x'00'", "REPEAT('c', 500)", "'abcdefgh'"],
    },
    Kind { name: "ENUM('x','y','z')", prefix: None, values: &["'x'", "'y'", "'z'"] },
    Kind { name: "SET('p','q','r')", prefix: None, values: &["''", "'p'", "'q,r'", "'p,q,r'"] },
    Kind {
        name: "BIT(11)",
        prefix: None,
        values: &["b'0'", "b'11'", "b'11111111111'", "b'10000000000'"],
    },
    Kind {
        name: "UUID",
        prefix: None,
        values: &[
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'00000000-0000-0000-0000-000000000001'",
        ],
    },
    Kind { name: "INET6", prefix: None, values: &["'::1'", "'ff00::1'", "'1.2.3.4'"] },
];
