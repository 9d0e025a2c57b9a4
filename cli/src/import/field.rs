//! A field of a JSON object as it is written: numbers keep all their digits.

use serde_json::Value;

/// The text of the field `name` of the object in `text`, which is sound JSON; `None` without such
/// a field.
///
/// # Errors
///
/// The field is there twice.
pub(super) fn written<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, String> {
    let mut found = None;
    let mut rest = inside(text);
    while let Some((key, behind)) = split(rest, b':') {
        let (value, behind) = split(behind, b',').unwrap_or((behind, ""));
        if serde_json::from_str::<String>(key.trim()).is_ok_and(|key| key == name) {
            if found.is_some() {
                return Err(format!("field `{name}` is there twice"));
            }
            found = Some(value.trim());
        }
        rest = behind;
    }
    Ok(found)
}

/// What lies between the braces of an object.
fn inside(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or("")
}

/// The text before and behind the first `mark` that lies in no string, array or object.
fn split(text: &str, mark: u8) -> Option<(&str, &str)> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            byte if byte == mark && depth == 0 => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// The key in a JSON object: the text of a string, or a number or a truth value as it is written.
///
/// # Errors
///
/// Why there is none.
pub(super) fn key(text: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let Value::Object(fields) = value else { return Err("not a JSON object".to_owned()) };
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let written = written(text, name)?;
    match (fields.get(name), written) {
        (Some(Value::String(text)), _) => Ok(text.as_bytes().to_vec()),
        (Some(Value::Number(_) | Value::Bool(_)), Some(written)) => Ok(written.as_bytes().to_vec()),
        (Some(_), _) => Err(format!("field `{name}` is no text and no number")),
        (None, _) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            Err(format!("there is no field `{name}`; there are {}", super::rows::listed(&names)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_is_written() {
        for (text, expected) in [
            (r#"{"id": 18446744073709551617, "v": 1}"#, Ok("18446744073709551617")),
            (r#"{"a": "\",id", "id" : -0.10}"#, Ok("-0.10")),
            (r#"{"a": {"id": 1}, "b": ["id", {"id": 2}], "id": 1e3}"#, Ok("1e3")),
            (r#" { "\u0069d" : true } "#, Ok("true")),
            (r#"{"id": "x\"\u00e9\\"}"#, Ok("x\"é\\")),
            (r#"{"id":1,"id":2}"#, Err("twice")),
            (r#"{"id":"a","\u0069d":"b"}"#, Err("twice")),
            (r#"{"id": [1]}"#, Err("no text")),
            (r#"{}"#, Err("no field")),
            (r#"[1]"#, Err("not a JSON object")),
            (r#"{"id": 1"#, Err("EOF")),
        ] {
            match (key(text.as_bytes(), "id"), expected) {
                (Ok(key), Ok(expected)) => assert_eq!(key, expected.as_bytes(), "{text}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
