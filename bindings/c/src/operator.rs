//! Merge operators: operands of tables, and operators that are functions of the caller's.

use std::ffi::c_void;
use std::ptr;

use crate::callback::Context;
use crate::database::durability;
use crate::error::{Error, Status};
use crate::guard::{self, need};
use crate::options::Options;
use crate::pointers::{Data, Text};
use crate::table::Table;

/// A merge operator of the caller's. It makes the value of a key out of value, the one before, or
/// NULL if there is none, and operand. It gives the result to terrace_merged_append, and returns
/// true. If it returns false, the operation that needs the value fails with TERRACE_INVALID, and
/// the operands stay as they are.
///
/// An operand has the form of a value, and the function is associative. It gives the same result
/// for the same input, always. Threads of the library and every thread that reads call it, several
/// at once. It calls no function of the library but terrace_merged_append, and returns normally: no
/// longjmp, and no exception of C++. What it is passed is valid until it returns.
pub type MergeFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
        operand: *const c_void,
        operand_len: usize,
        result: &mut Merged,
    ) -> bool,
>;

/// Where a merge operator puts its result.
#[derive(Debug)]
pub struct Merged(Vec<u8>);

/// An operator that calls a function of the caller's.
struct CallerOperator {
    name: String,
    function: MergeFunction,
    context: Context,
}

impl terrace::MergeOperator for CallerOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let function = self.function.ok_or("it has no function")?;
        let mut merged = Merged(Vec::new());
        // SAFETY: the function is the caller's, with this signature and context. The pointers are
        // valid for the lengths beside them until it returns; NULL stands for no value alone.
        let done = unsafe {
            function(
                self.context.pointer(),
                key.as_ptr().cast(),
                key.len(),
                value.map_or(ptr::null(), |value| value.as_ptr().cast()),
                value.map_or(0, <[u8]>::len),
                operand.as_ptr().cast(),
                operand.len(),
                &mut merged,
            )
        };
        if done { Ok(merged.0) } else { Err("its function returned false".into()) }
    }
}

/// Registers a merge operator for databases that are opened with these options. A table that has it
/// names it in its option merge_operator. The name has 1 to 31 bytes. One with a dot is never that
/// of a built-in operator: "example.least". Each opening registers the operators that its tables
/// name. The function is called as terrace_merge_function says. It and its context, which may be
/// NULL, stay valid until the options and all handles of these databases are freed.
///
/// Errors: TERRACE_INVALID for NULL. A name that is out of bounds or taken makes openings fail.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_add_merge_operator(
    options: Option<&mut Options>,
    name: Text,
    function: MergeFunction,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (options, name) = (need(options, "options")?, name.text("name")?.to_owned());
        need(function, "function")?;
        let operator = CallerOperator { name, function, context: Context::new(context) };
        options.0 = std::mem::take(&mut options.0).merge_operator(operator);
        Ok(())
    })
}

/// Appends bytes to the result of a merge operator. For merge operators alone.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_merged_append(
    result: Option<&mut Merged>,
    data: Data,
    len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let result = need(result, "result")?;
        result.0.extend_from_slice(data.bytes(len, "data")?);
        Ok(())
    })
}

/// Merges an operand into the value of a key, with the merge operator of the table and the
/// durability that is named. It writes the operand and reads no value; reads merge. An operand that
/// the operator refuses is written all the same: reads of the key fail then.
///
/// Errors: TERRACE_INVALID when the table has no merge operator, or one that is not registered;
/// otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_merge(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    operand: Data,
    operand_len: usize,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, durability) = (need(table, "table")?, self::durability(durability)?);
        let (key, operand) = (key.bytes(key_len, "key")?, operand.bytes(operand_len, "operand")?);
        Ok(table.durably(durability).merge(key, operand)?)
    })
}

#[cfg(test)]
mod tests {
    use terrace::MergeOperator;

    use super::*;

    unsafe extern "C" fn lengths(
        context: *mut c_void,
        _key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
        _operand: *const c_void,
        operand_len: usize,
        result: &mut Merged,
    ) -> bool {
        let lens = [key_len as u8, value_len as u8, operand_len as u8, u8::from(value.is_null())];
        // SAFETY: the array is valid for its length.
        let data = unsafe { Data::new(lens.as_ptr().cast()) };
        terrace_merged_append(Some(result), data, lens.len(), None) == Status::TERRACE_OK
            && context.is_null()
    }

    #[test]
    fn no_value_is_null_and_an_empty_one_is_not() {
        let of = |context| {
            let context = Context::new(context);
            CallerOperator { name: "x".into(), function: Some(lengths), context }
        };
        let operator = of(ptr::null_mut());
        assert_eq!(operator.merge(b"k", None, b"abc"), Ok(vec![1, 0, 3, 1]));
        assert_eq!(operator.merge(b"", Some(b""), b""), Ok(vec![0, 0, 0, 0]));
        let refusing = of(ptr::from_ref(&operator).cast_mut().cast());
        assert!(refusing.merge(b"k", None, b"").unwrap_err().contains("returned false"));
    }
}
