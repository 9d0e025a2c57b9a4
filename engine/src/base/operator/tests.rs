use proptest::prelude::*;

use super::built_in::{APPEND, COUNTER, MAX, SET_UNION, set_of};
use super::*;

fn operator(name: &str) -> TableOperator {
    Operators::default().of(Some(OperatorName::new(name)))
}

/// What an operator makes of two values.
fn merged(operator: &TableOperator, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    operator.fold(b"k", value, [operand].into_iter()).unwrap()
}

proptest! {
    /// What drains and compactions rely on.
    #[test]
    fn built_in_operators_are_associative(
        numbers in prop::collection::vec(any::<i64>(), 3),
        bytes in prop::collection::vec(prop::collection::vec(0u8..4, 0..5), 3),
        sets in prop::collection::vec(prop::collection::vec("[a-c]{0,2}", 0..4), 3),
        has_value in any::<bool>(),
    ) {
        let numbers: Vec<Vec<u8>> = numbers.iter().map(|n| n.to_be_bytes().to_vec()).collect();
        let sets: Vec<Vec<u8>> = sets.iter().map(set_of).collect();
        let of_bytes = [(APPEND, &bytes), (MAX, &bytes)];
        for (name, v) in of_bytes.into_iter().chain([(COUNTER, &numbers), (SET_UNION, &sets)]) {
            let operator = operator(name);
            let base = has_value.then_some(v[0].as_slice());
            let one_by_one = merged(&operator, Some(&merged(&operator, base, &v[1])), &v[2]);
            let operands_first = merged(&operator, base, &merged(&operator, Some(&v[1]), &v[2]));
            prop_assert_eq!(one_by_one, operands_first, "{}", name);
        }
    }
}

#[test]
fn an_operator_that_fails_or_is_missing_is_an_error_with_names() {
    struct Bad;
    impl MergeOperator for Bad {
        fn name(&self) -> &str {
            "test.bad"
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
            match operand {
                b"panic" => panic!("on purpose"),
                b"long" => Ok(vec![0; MAX_VALUE_LEN + 1]),
                _ => Err("on purpose".into()),
            }
        }
    }
    use std::result::Result;
    let operators = Operators::default().with(&[Arc::new(Bad)]).unwrap();
    assert!(operators.clone().with(&[Arc::new(Bad)]).is_err(), "a name is taken once");
    let bad = operators.of(Some(OperatorName::new("test.bad")));
    let operands = [(&b"panic"[..], "panics"), (b"long", "limit"), (b"", "on purpose")];
    for (operand, why) in operands {
        let error = bad.fold(b"k", None, [operand].into_iter()).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("test.bad") && error.contains("\"k\""));
    }
    let missing = operator("test.bad").check().unwrap_err().to_string();
    assert!(missing.contains("test.bad") && missing.contains("with merge_operator"));
    assert!(operators.of(None).check().is_err());
    let counter = operator(COUNTER).fold(b"k", None, [&b"12"[..]].into_iter());
    assert!(counter.unwrap_err().to_string().contains("2 bytes"));
}

#[test]
fn names_are_checked() {
    assert!(OperatorName::new("").check().is_err());
    assert!(OperatorName::new(&"é".repeat(16)).check().is_err());
    let longest = OperatorName::new(&"n".repeat(31));
    assert!(longest.check().is_ok());
    assert_eq!(OperatorName::decode(longest.as_str().as_bytes()), Some(longest));
    assert_eq!(OperatorName::decode(b"\xff"), None);
}
