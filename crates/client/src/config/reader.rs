//! A reader of TOML, field by field, so that each error names its line and the expected value.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "reads configuration files")]

use super::addresses::AddressUse;
use super::error::ConfigError;
use super::number::{parse_size, show_size};
use quorate_types::PublicKey;
use quorate_types::digest::from_hex;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A field of a configuration file: its documentation, for readers of the code and of generated files.
#[derive(Debug)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Meaning of the field.
    pub about: &'static str,
    /// A possible value, as TOML.
    pub example: &'static str,
    /// The way to another value in a cluster that exists.
    pub change: Change,
}

/// The way to another value of a field in a cluster that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// There is none: the value is part of the identity of the cluster or of the replica.
    Never,
    /// All nodes stop, all copies of the file change, and all nodes start.
    Everywhere,
    /// The file changes, and a node or client uses the new value from its next start.
    AtStart,
}

impl Change {
    /// Returns the description for the reference of the configuration.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Everywhere => "in all copies, while all nodes are stopped",
            Self::AtStart => "at the next start",
        }
    }
}

/// The line of each field of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    file: PathBuf,
    lines: BTreeMap<String, usize>,
}

impl Origin {
    /// Makes an error about a field that has been read.
    pub fn error(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.lines.get(field).copied(),
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// Resolves a path of the file: a relative path begins at the folder of the file.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let mut folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let mut rest = path;
        // Messages show the shorter path. Behind a symbolic link `..` has another meaning.
        while let Ok(shorter) = rest.strip_prefix("..")
            && folder.file_name().is_some()
            && !folder.is_symlink()
        {
            folder.pop();
            rest = shorter;
        }
        folder.join(rest)
    }

    /// Adds the lines of further fields.
    pub fn add(&mut self, lines: BTreeMap<String, usize>) {
        self.lines.extend(lines);
    }
}

/// The text of a file.
#[derive(Debug)]
pub struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails when it cannot be read.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(file).map_err(|error| ConfigError {
            file: file.to_owned(),
            line: None,
            field: "(file)".to_owned(),
            problem: format!("cannot be read: {error}; `quorate testnet` makes a complete set of files"),
        })?;
        Ok(Self { file: file.to_owned(), text })
    }

    /// Returns a text without a file; errors name it `file`.
    #[must_use]
    pub fn of(file: &str, text: &str) -> Self {
        Self { file: file.into(), text: text.to_owned() }
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns an origin without fields.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin { file: self.file.clone(), lines: BTreeMap::new() }
    }

    /// Parses the text.
    ///
    /// # Errors
    /// Fails when it is no TOML.
    pub fn parse(&self) -> Result<Section<'_>, ConfigError> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let at = error.span().unwrap_or(0..0).start;
            let field = self.text.get(self.line_range(at)).unwrap_or_default();
            let field = field.split('=').next().unwrap_or_default().trim();
            let field = if field.is_empty() { "(syntax)" } else { field };
            let problem = format!("not valid TOML: {}; correct this line", error.message());
            self.error(at, field, problem)
        })?;
        Ok(Section::new(self, String::new(), 0, table.into_inner()))
    }

    fn error(&self, at: usize, field: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: Some(self.line_at(at)),
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    fn line_at(&self, at: usize) -> usize {
        let before = self.text.bytes().take(at);
        before.filter(|byte| *byte == b'\n').count().saturating_add(1)
    }

    fn line_range(&self, at: usize) -> Range<usize> {
        let before = self.text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline.saturating_add(1));
        let rest = self.text.get(start..).unwrap_or_default();
        start..start.saturating_add(rest.find('\n').unwrap_or(rest.len()))
    }
}

/// One table of a file. The reader takes fields out of it; a field that remains at the end is unknown.
#[derive(Debug)]
pub struct Section<'s> {
    source: &'s Source,
    path: String,
    at: usize,
    table: DeTable<'s>,
    known: Vec<&'static str>,
    lines: BTreeMap<String, usize>,
}

impl<'s> Section<'s> {
    fn new(source: &'s Source, path: String, at: usize, table: DeTable<'s>) -> Self {
        Self { source, path, at, table, known: Vec::new(), lines: BTreeMap::new() }
    }

    fn full_name(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes a value out, with the place of its key.
    fn remove(&mut self, name: &str) -> Option<(usize, Spanned<DeValue<'s>>)> {
        let (key, value) = self.table.remove_entry(name)?;
        let at = key.span().start;
        self.lines.insert(self.full_name(name), self.source.line_at(at));
        Some((at, value))
    }

    fn take(
        &mut self,
        name: &'static str,
        expected: &str,
        example: &str,
    ) -> Result<(usize, Spanned<DeValue<'s>>), ConfigError> {
        self.known.push(name);
        self.remove(name).ok_or_else(|| {
            let problem = format!("missing; expected {expected}; add, for example, {example}");
            self.source.error(self.at, &self.full_name(name), problem)
        })
    }

    fn wrong(&self, name: &str, at: usize, span: Range<usize>, expected: &str, example: &str) -> ConfigError {
        let found = self.source.text.get(span).unwrap_or_default();
        let found = found.lines().next().unwrap_or_default();
        let found: String = found.chars().take(60).collect();
        let problem = format!("expected {expected}, found {found}; write, for example, {example}");
        self.source.error(at, &self.full_name(name), problem)
    }

    /// Takes a value that `read` accepts.
    ///
    /// # Errors
    /// Fails when the field is missing or holds another value.
    pub fn value<T>(
        &mut self,
        field: &Field,
        expected: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let example = format!("{} = {}", field.name, field.example);
        let (at, value) = self.take(field.name, expected, &example)?;
        let span = value.span();
        read(&value.into_inner()).ok_or_else(|| self.wrong(field.name, at, span, expected, &example))
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn number<T: TryFrom<u64>>(
        &mut self,
        field: &Field,
        range: RangeInclusive<u64>,
    ) -> Result<T, ConfigError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.value(field, &expected, |value| {
            let number = value.as_integer()?;
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
            T::try_from(range.contains(&number).then_some(number)?).ok()
        })
    }

    /// Takes a number of bytes.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn size<T: TryFrom<u64>>(
        &mut self,
        field: &Field,
        range: RangeInclusive<u64>,
    ) -> Result<T, ConfigError> {
        let (least, most) = (show_size(*range.start()), show_size(*range.end()));
        let expected = format!("a size from \"{least}\" to \"{most}\"");
        self.value(field, &expected, |value| {
            let bytes = parse_size(value.as_str()?)?;
            T::try_from(range.contains(&bytes).then_some(bytes)?).ok()
        })
    }

    /// Takes one of a few words.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn choice<T: Copy>(&mut self, field: &Field, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.value(field, &words.join(" or "), |value| {
            let found = value.as_str()?;
            choices.iter().find(|(word, _)| *word == found).map(|(_, choice)| *choice)
        })
    }

    /// Takes an IP address and a port.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn address(&mut self, field: &Field, usage: AddressUse) -> Result<SocketAddr, ConfigError> {
        self.value(field, usage.expected(), |value| {
            value.as_str()?.parse().ok().filter(|address| usage.suits(address))
        })
    }

    /// Takes 32 bytes in hexadecimal digits.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn bytes32(&mut self, field: &Field) -> Result<[u8; 32], ConfigError> {
        self.value(field, "64 hexadecimal digits", |value| hex32(value.as_str()?))
    }

    /// Takes an Ed25519 public key.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn key(&mut self, field: &Field) -> Result<PublicKey, ConfigError> {
        self.value(field, EXPECTED_KEY, |value| read_key(value.as_str()?))
    }

    /// Takes a path.
    ///
    /// # Errors
    /// As [`Section::value`].
    pub fn path(&mut self, field: &Field) -> Result<PathBuf, ConfigError> {
        self.value(field, "a path", |value| value.as_str().filter(|path| !path.is_empty()).map(PathBuf::from))
    }

    /// Takes a table.
    ///
    /// # Errors
    /// Fails when it is missing, or the field is no table.
    pub fn section(&mut self, name: &'static str) -> Result<Self, ConfigError> {
        let example = format!("[{name}]");
        let (at, value) = self.take(name, "a table", &example)?;
        self.enter(name, at, value, &example)
    }

    /// Takes a table that may be missing.
    ///
    /// # Errors
    /// Fails when the field is no table.
    pub fn optional(&mut self, name: &'static str) -> Result<Option<Self>, ConfigError> {
        self.known.push(name);
        self.section_named(name)
    }

    /// Takes a table whose name is known at run time only.
    ///
    /// # Errors
    /// Fails when the field is no table.
    pub fn section_named(&mut self, name: &str) -> Result<Option<Self>, ConfigError> {
        match self.remove(name) {
            Some((at, value)) => self.enter(name, at, value, &format!("[{name}]")).map(Some),
            None => Ok(None),
        }
    }

    /// Takes the tables under `[[name]]`, in order.
    ///
    /// # Errors
    /// Fails when they are missing, or the field is no list of tables.
    pub fn list(&mut self, name: &'static str) -> Result<Vec<Self>, ConfigError> {
        let example = format!("[[{name}]]");
        let (at, value) = self.take(name, "a list of tables", &example)?;
        let span = value.span();
        let DeValue::Array(array) = value.into_inner() else {
            return Err(self.wrong(name, at, span, "a list of tables", &example));
        };
        let entries = array.into_iter().enumerate();
        entries
            .map(|(index, entry)| {
                let at = entry.span().start;
                self.enter(&format!("{name}[{index}]"), at, entry, &example)
            })
            .collect()
    }

    fn enter(
        &self,
        name: &str,
        at: usize,
        value: Spanned<DeValue<'s>>,
        example: &str,
    ) -> Result<Self, ConfigError> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Self::new(self.source, self.full_name(name), at, table)),
            _ => Err(self.wrong(name, at, span, "a table", example)),
        }
    }

    /// Returns the names of the remaining fields, for a table whose fields are known at run time only.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.table.keys().map(|key| key.get_ref().to_string()).collect()
    }

    /// Takes a field without reading it.
    pub fn skip(&mut self, name: &str) {
        self.remove(name);
    }

    /// Ends the reading of this table, and returns the line of each field.
    ///
    /// # Errors
    /// Fails when a field is left: it is unknown.
    pub fn finish(self) -> Result<BTreeMap<String, usize>, ConfigError> {
        match self.table.keys().min_by_key(|key| key.span().start) {
            None => Ok(self.lines),
            Some(key) => {
                let name = self.full_name(key.get_ref());
                let problem = format!(
                    "unknown field; expected one of {}; correct its name or remove it",
                    self.known.join(", ")
                );
                Err(self.source.error(key.span().start, &name, problem))
            }
        }
    }

    /// Returns an error about a remaining field, or about the table if it has no such field.
    #[must_use]
    pub fn error_at(&self, name: &str, problem: impl Into<String>) -> ConfigError {
        let at = self.table.get_key_value(name).map_or(self.at, |(key, _)| key.span().start);
        self.source.error(at, &self.full_name(name), problem)
    }
}

/// Description of a public key in errors.
pub const EXPECTED_KEY: &str = "an Ed25519 public key as 64 hexadecimal digits";

/// Reads 32 bytes in hexadecimal digits.
#[must_use]
pub fn hex32(text: &str) -> Option<[u8; 32]> {
    <[u8; 32]>::try_from(from_hex(text)?).ok()
}

/// Reads a key that verifies signatures. It refuses small-order and other unsound keys, because the reader can name the line.
#[must_use]
pub fn read_key(text: &str) -> Option<PublicKey> {
    let key = PublicKey(hex32(text)?);
    quorate_crypto::VerifyKey::register(quorate_crypto::Scheme::Ed25519, key).ok()?;
    Some(key)
}
