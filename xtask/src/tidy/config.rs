//! `tidy.toml`: the layers of the engine and the exceptions to the rules, each with its reason.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The whole of `tidy.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The layers, from the ground up.
    #[serde(default, rename = "layer")]
    pub(crate) layers: Vec<Layer>,
    /// Folders of the engine that know little of their part.
    #[serde(default)]
    pub(crate) closed: Vec<Closed>,
    /// Where `unsafe` may be written.
    #[serde(default, rename = "unsafe_code")]
    pub(crate) unsafe_code: Vec<UnsafeCode>,
    /// Functions that may be longer than the limit.
    #[serde(default, rename = "long_function")]
    pub(crate) long_functions: Vec<LongFunction>,
    /// Which fuzz target tries which decoders.
    #[serde(default, rename = "decoder")]
    pub(crate) decoders: Vec<Decoder>,
    /// Names that several types of the engine may have.
    #[serde(default, rename = "shared_names")]
    pub(crate) shared_names: Vec<SharedNames>,
    /// Documents that may be longer than the limit.
    #[serde(default, rename = "document_limit")]
    pub(crate) document_limits: Vec<DocumentLimit>,
    /// Names in documents that are of other programs.
    #[serde(default, rename = "foreign_names")]
    pub(crate) foreign_names: Vec<ForeignNames>,
}

/// Names in documents that no source has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForeignNames {
    /// The names.
    pub(crate) names: Vec<String>,
    /// Whose they are.
    pub(crate) reason: String,
}

/// Names that several types of the engine have, for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedNames {
    /// The names.
    pub(crate) names: Vec<String>,
    /// Why they are shared.
    pub(crate) reason: String,
}

/// A document over the limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentLimit {
    /// The path from the root.
    pub(crate) path: String,
    /// How many bytes it may have.
    pub(crate) bytes: usize,
    /// Why it is longer.
    pub(crate) reason: String,
}

/// A file of the engine that decodes bytes from a medium.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decoder {
    /// The path from the root.
    pub(crate) path: String,
    /// The target and corpus that try it.
    pub(crate) target: String,
}

/// One layer. Its parts may use one another, and the parts of the layers before it; a layer of
/// one wing may not use the other wing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    /// The name in findings.
    pub(crate) name: String,
    /// The wing, if the layer is in one.
    pub(crate) wing: Option<String>,
    /// Folders or files of `engine/src`, without `.rs`.
    pub(crate) parts: Vec<String>,
}

/// A folder whose files use no more of their part than is listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closed {
    /// The folder from the root.
    pub(crate) path: String,
    /// Modules of the part, and of the folder itself.
    pub(crate) uses: Vec<String>,
}

/// A folder or file in which `unsafe` is allowed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnsafeCode {
    /// The path from the root.
    pub(crate) path: String,
    /// Why it has to be there.
    pub(crate) reason: String,
}

/// A function over the limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LongFunction {
    /// The file from the root.
    pub(crate) path: String,
    /// The function.
    pub(crate) name: String,
    /// Why it is better in one piece.
    pub(crate) reason: String,
}

impl Config {
    /// Reads `tidy.toml` at the root.
    pub(crate) fn load(root: &Path) -> Result<Config> {
        let path = root.join("tidy.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Config::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Parses the text of a `tidy.toml`. An exception without a reason is refused.
    pub(crate) fn parse(text: &str) -> Result<Config> {
        let config: Config = toml::from_str(text)?;
        for allowed in &config.unsafe_code {
            ensure!(!allowed.reason.trim().is_empty(), "{} has no reason", allowed.path);
        }
        for long in &config.long_functions {
            ensure!(!long.reason.trim().is_empty(), "{} {} has no reason", long.path, long.name);
        }
        for shared in &config.shared_names {
            ensure!(!shared.reason.trim().is_empty(), "{:?} have no reason", shared.names);
        }
        for foreign in &config.foreign_names {
            ensure!(!foreign.reason.trim().is_empty(), "{:?} have no reason", foreign.names);
        }
        for limit in &config.document_limits {
            ensure!(!limit.reason.trim().is_empty(), "{} has no reason", limit.path);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_needs_a_reason() {
        let text = "[[unsafe_code]]\npath = 'a'\nreason = ' '";
        assert!(Config::parse(text).unwrap_err().to_string().contains("no reason"));
        assert!(Config::parse("[[unsafe_code]]\npath = 'a'").is_err());
    }

    #[test]
    fn an_unknown_word_is_refused() {
        assert!(Config::parse("[[layers]]\nname = 'a'").is_err());
    }
}
