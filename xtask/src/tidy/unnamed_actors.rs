//! Comments, documents and messages name the component that acts: "the publisher", "a reader",
//! "another thread". A pronoun in its place leaves open which component it is.

use super::Finding;
use super::config::UnnamedActors;
use super::source::is_word;
use super::unsafe_code::is_under;

const RULE: &str = "unnamed-actor";

/// The refused words, in lower case. Written in halves, so that this file does not find itself.
const PRONOUNS: &[&str] = &[
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("who", "ever"),
];

/// Ends of the names of files that have prose: sources, documents and test data.
const ENDS: &[&str] =
    &[".rs", ".md", ".toml", ".txt", ".c", ".h", ".cc", ".cpp", ".py", ".pyi", ".sh", ".yml"];

/// The rule over all files, which counts which exemptions are needed.
pub(crate) struct Rule<'a> {
    exempt: &'a [UnnamedActors],
    needed: Vec<bool>,
}

impl<'a> Rule<'a> {
    /// The rule with its exemptions.
    pub(crate) fn new(exempt: &'a [UnnamedActors]) -> Rule<'a> {
        Rule { exempt, needed: vec![false; exempt.len()] }
    }

    /// Finds the pronouns in one file.
    pub(crate) fn check(&mut self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if !ENDS.iter().any(|end| path.ends_with(end)) {
            return;
        }
        for (number, line) in text.lines().enumerate() {
            let Some(word) = words(line).find_map(pronoun) else { continue };
            match self.exempt.iter().position(|place| is_under(path, &place.path)) {
                Some(place) => self.needed[place] = true,
                None => {
                    let advice = format!(
                        "`{word}`: name the component, as in \"a reader\" or \"no thread\""
                    );
                    findings.push(Finding::new(path, number + 1, RULE, advice));
                }
            }
        }
    }

    /// Finds exemptions that no file needs.
    pub(crate) fn finish(self, findings: &mut Vec<Finding>) {
        for (place, _) in self.exempt.iter().zip(self.needed).filter(|(_, needed)| !needed) {
            let advice = format!("{} names every actor: remove the exception", place.path);
            findings.push(Finding::new("tidy.toml", 1, RULE, advice));
        }
    }
}

/// The words of a line. An identifier is one word, whatever stands in it.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c))
}

/// The refused word that `word` is, in any case of letters.
fn pronoun(word: &str) -> Option<&'static str> {
    PRONOUNS.iter().copied().find(|pronoun| word.eq_ignore_ascii_case(pronoun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, exempt: &[&str]) -> Vec<Finding> {
        let place = |path: &&str| UnnamedActors { path: (*path).into(), reason: "r".into() };
        let exempt: Vec<UnnamedActors> = exempt.iter().map(place).collect();
        let (mut rule, mut findings) = (Rule::new(&exempt), Vec::new());
        rule.check(path, text, &mut findings);
        rule.finish(&mut findings);
        findings
    }

    #[test]
    fn each_pronoun_is_found_in_comments_documents_and_messages() {
        for word in PRONOUNS {
            let upper = word.to_uppercase();
            let comment = format!("fn a() {{}}\n/// Waits until {word} writes.\nfn b() {{}}");
            assert_eq!(found("engine/src/a.rs", &comment, &[])[0].line, 2, "{word}");
            assert_eq!(found("a.rs", &format!("err(\"{word}'s lock\")"), &[]).len(), 1, "{word}");
            assert_eq!(found("docs/a.md", &format!("{upper} reads.\n{word}."), &[]).len(), 2);
            assert_eq!(found("a.py", &format!("# {word} reads"), &[]).len(), 1, "{word}");
        }
    }

    #[test]
    fn identifiers_other_words_and_other_files_are_free() {
        for word in PRONOUNS {
            assert_eq!(found("a.rs", &format!("fn a_lock_that_{word}_holds() {{}}"), &[]), []);
            assert_eq!(found("a.rs", &format!("// {word}s and a{word}"), &[]), []);
            assert_eq!(found("a.zst", word, &[]), []);
        }
        assert_eq!(found("a.md", "No thread reads it. A body of a function.", &[]), []);
    }

    #[test]
    fn an_exempt_place_is_free_and_one_that_needs_no_exemption_is_found() {
        let text = format!("// {}", PRONOUNS[0]);
        assert_eq!(found("engine/src/a/b.rs", &text, &["engine/src/a"]), []);
        assert_eq!(found("engine/src/ab.rs", &text, &["engine/src/a"]).len(), 2);
        let unneeded = found("engine/src/a/b.rs", "// A reader.", &["engine/src/a"]);
        assert_eq!((unneeded.len(), unneeded[0].path.as_str()), (1, "tidy.toml"));
    }
}
