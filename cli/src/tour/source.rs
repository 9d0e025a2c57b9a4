//! Real data: what this system knows of its packages, else its files, or a file of the user's.

use std::collections::HashSet;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use crate::failure::Failure;
use crate::import;

/// Fewer records are a poor demonstration; the next source is asked.
const ENOUGH: usize = 1_000;

/// Where every system has many files.
const FOLDER: &str = if cfg!(windows) { r"C:\Windows" } else { "/usr" };

/// Files looked at below it.
const MOST_FILES: usize = 100_000;

/// Larger records are left out: they would not fit in a zone of the tour's small region.
const LARGEST: usize = 128 * 1024;

/// Keys and values.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Records to import.
pub(crate) struct Source {
    /// The table that they go into.
    pub(crate) table: &'static str,
    /// Where they come from, for people.
    pub(crate) from: String,
    pub(crate) records: Records,
}

/// Reads the file, or the first source of the system that has enough.
pub(crate) fn find(input: Option<&Path>) -> Result<Source, Failure> {
    let mut source = match input {
        Some(path) => of_file(path)?,
        None => of_this_system(),
    };
    source.records.retain(|(key, value)| key.len() + value.len() <= LARGEST);
    let least = super::batch::THREADS as usize;
    if source.records.len() < least {
        return Err(Failure::Invalid(format!(
            "{} has {} records, the tour needs {least}; name a file with --input",
            source.from,
            source.records.len()
        )));
    }
    Ok(source)
}

fn of_this_system() -> Source {
    let mut best = of_apt();
    for other in [of_dpkg, of_files] {
        if best.records.len() > ENOUGH {
            break;
        }
        let other = other();
        if other.records.len() > best.records.len() {
            best = other;
        }
    }
    best
}

fn of_apt() -> Source {
    let text = printed(Command::new("apt-cache").arg("dumpavail"));
    packages("apt-cache dumpavail", &text)
}

fn of_dpkg() -> Source {
    let fields = ["Package", "Version", "Architecture", "Section", "Installed-Size", "Maintainer"];
    let mut format: String = fields.map(|field| format!("{field}: ${{{field}}}\n")).concat();
    format.push_str("Depends: ${Depends}\nDescription: ${Description}\n\n");
    let text = printed(Command::new("dpkg-query").args(["-W", "-f"]).arg(format));
    packages("dpkg-query -W", &text)
}

/// What a command prints; nothing if it is not there or fails.
fn printed(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.ok().filter(|output| output.status.success()).map_or(Vec::new(), |output| output.stdout)
}

fn packages(from: &str, text: &[u8]) -> Source {
    let mut names = HashSet::new();
    let mut records = Vec::new();
    for stanza in stanzas(text) {
        let Some(name) = field(stanza, b"Package:") else { continue };
        let mut key = name.to_vec();
        // A package that comes in several versions has the version in its key.
        if !names.insert(key.clone()) {
            key.push(b' ');
            key.extend_from_slice(field(stanza, b"Version:").unwrap_or_default());
            names.insert(key.clone());
        }
        records.push((key, stanza.to_vec()));
    }
    Source { table: "packages", from: from.to_owned(), records }
}

/// The paragraphs of a text, separated by empty lines.
fn stanzas(text: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if line == b"\n" {
            found.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    found.push(&text[start..]);
    found.retain(|stanza| !stanza.trim_ascii().is_empty());
    found
}

/// A field of a stanza, without the lines that continue it.
fn field<'a>(stanza: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    stanza
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
        .map(<[u8]>::trim_ascii)
}

fn of_files() -> Source {
    let mut records = Vec::new();
    let mut folders = vec![PathBuf::from(FOLDER)];
    while let Some(folder) = folders.pop() {
        // What cannot be read is left out.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(data) = entry.metadata() else { continue };
            if data.is_dir() {
                folders.push(entry.path());
            }
            let key = entry.path().into_os_string().into_encoded_bytes();
            records.push((key, described(&data).into_bytes()));
        }
        if records.len() >= MOST_FILES {
            break;
        }
    }
    Source { table: "files", from: format!("the files under {FOLDER}"), records }
}

/// What a file system knows of a file.
fn described(data: &fs::Metadata) -> String {
    #[cfg(unix)]
    let mode = std::os::unix::fs::MetadataExt::mode(data);
    #[cfg(windows)]
    let mode = std::os::windows::fs::MetadataExt::file_attributes(data);
    let since = data.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let (size, mtime) = (data.len(), since.unwrap_or_default().as_secs());
    format!(r#"{{"size":{size},"mode":"{mode:o}","mtime":{mtime}}}"#)
}

fn of_file(path: &Path) -> Result<Source, Failure> {
    use crate::args::Format;

    let file = import::open(path)?;
    let records = match import::format_of(path) {
        Some(format @ (Format::Csv | Format::Tsv)) => {
            let mut records = Vec::new();
            for row in import::read(file, format, None)? {
                // A broken row is not what the tour is about.
                if let Ok(row) = row? {
                    records.push((row.key, row.value));
                }
            }
            records
        }
        Some(Format::Jsonl) | None => lines(path, file)?,
    };
    Ok(Source { table: "rows", from: path.display().to_string(), records })
}

/// The lines of a file under their numbers.
fn lines(path: &Path, file: fs::File) -> Result<Records, Failure> {
    let mut records = Vec::new();
    for (at, line) in std::io::BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| Failure::io(format!("read {}", path.display()), &error))?;
        records.push((format!("{:09}", at + 1).into_bytes(), line));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_become_records() {
        let text = b"Package: a\nVersion: 1\nDescription: x\n more\n\nPackage: a\nVersion: 2\n\n\n";
        let source = packages("test", text);
        let keys: Vec<&[u8]> = source.records.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [&b"a"[..], b"a 2"]);
        assert!(source.records[0].1.ends_with(b" more\n"));
    }

    #[test]
    fn a_text_without_packages_has_no_records() {
        assert!(packages("test", b"").records.is_empty());
        assert!(packages("test", b"nothing\n\nhere\n").records.is_empty());
    }
}
