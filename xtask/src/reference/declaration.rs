//! Declarations in Rust source with their documentation, as far as the reference needs them:
//! entries of a block, one after the other, in the form that rustfmt gives them.

/// A field, a variant, an option or a constant: its documentation and its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declaration {
    /// Lines of documentation, without `///`.
    doc: Vec<String>,
    /// Attributes, one after the other.
    pub(crate) attributes: String,
    /// The code, on one line, without its last comma, semicolon or brace.
    pub(crate) code: String,
}

impl Declaration {
    /// The name that the code declares.
    pub(crate) fn name(&self) -> &str {
        let code = self.code.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let code = code.trim_start_matches("const ").trim_start_matches("fn ");
        &code[..code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len())]
    }

    /// The type of a field: what follows its name.
    pub(crate) fn field_type(&self) -> &str {
        self.code.split_once(": ").map_or("", |(_, of)| of)
    }

    /// The first paragraph of the documentation, as it reads in a table of Markdown.
    pub(crate) fn meaning(&self) -> String {
        let lines = self.doc.iter().take_while(|line| !line.is_empty());
        cell(&lines.map(String::as_str).collect::<Vec<_>>().join(" "))
    }
}

/// A text of rustdoc in a cell of a table: without links, whose targets are no pages.
pub(crate) fn cell(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('[') {
        let Some((label, after)) = behind.split_once(']') else { break };
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        // What is no link keeps its brackets.
        let is_link = target.is_some() || label.starts_with('`');
        let label = if is_link { label.to_owned() } else { format!("[{label}]") };
        out.push_str(before);
        out.push_str(&label);
        rest = target.map_or(after, |(_, after)| after);
    }
    out.push_str(rest);
    out.replace("``", "").replace('|', "\\|")
}

/// The lines between the line that is `start` but for its indentation, or begins with it, and the
/// brace that closes at the same indentation.
pub(crate) fn block(text: &str, start: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.trim_start().starts_with(start))?;
    let is_declared = lines[first].trim_end().ends_with(';');
    let indent = lines[first].len() - lines[first].trim_start().len();
    // What a macro declares ends with the macro, which is indented less.
    let close = format!("{}}}", " ".repeat(if is_declared { indent - 4 } else { indent }));
    let len = lines[first..].iter().position(|line| *line == close)?;
    Some(lines[first + 1..first + len].join("\n"))
}

/// The declarations of a block, each with what stands above it.
pub(crate) fn declarations(block: &str) -> Vec<Declaration> {
    let (mut found, mut next) = (Vec::new(), Declaration::default());
    for line in block.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            next.doc.push(doc.trim().to_owned());
        } else if next.code.is_empty() && line.starts_with("#[") {
            next.attributes.push_str(line);
        } else if line.starts_with('@') || line.starts_with("//") || line.is_empty() {
            // It separates, or is for readers of the source.
        } else {
            let space = if next.code.is_empty() { "" } else { " " };
            next.code = format!("{}{space}{line}", next.code);
            if line.ends_with([',', ';', '{']) {
                next.code.pop();
                found.push(std::mem::take(&mut next));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &str = "\
declare! {
    /// What.
    struct Options: [];

    /// The size, see [`limits`](crate::limits)`::MOST`.
    ///
    /// More of it.
    #[doc(hidden)]
    size(bytes: u64): u64 = 8 << 20
        => bytes, takes bytes();

    @fields
    name: Option<Name> = None, takes NAME;
}

impl Options {
}
";

    #[test]
    fn options_have_their_documentation_and_all_of_their_code() {
        let found = declarations(&block(OPTIONS, "struct Options:").unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].name(), "size");
        assert_eq!(found[0].meaning(), "The size, see `limits::MOST`.");
        assert_eq!(found[0].attributes, "#[doc(hidden)]");
        assert!(found[0].code.ends_with("8 << 20 => bytes, takes bytes()"));
        assert_eq!(found[1].code, "name: Option<Name> = None, takes NAME");
    }

    #[test]
    fn fields_have_types_and_a_block_ends_at_its_brace() {
        let text =
            "pub struct A {\n    /// One.\n    pub a: Vec<(u8, u8)>,\n}\npub struct B {\n}\n";
        let found = declarations(&block(text, "pub struct A {").unwrap());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name(), found[0].field_type()), ("a", "Vec<(u8, u8)>"));
        assert!(block(text, "pub struct C {").is_none());
    }

    #[test]
    fn links_lose_their_targets() {
        assert_eq!(cell("a [`B`](c::d), [`E`] | [f]"), "a `B`, `E` \\| [f]");
    }
}
