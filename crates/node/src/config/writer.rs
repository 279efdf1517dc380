//! A writer of configuration files with an explanation of each field.

use quorate_client::config::reader::Field;
use quorate_client::config::show_size;
use std::fmt::{Display, Write};

/// A writer of the text of one file.
pub(super) struct TomlWriter {
    text: String,
}

impl TomlWriter {
    pub(super) fn new() -> Self {
        Self { text: String::new() }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    pub(super) fn gap(&mut self) {
        self.line("");
    }

    pub(super) fn comment(&mut self, text: &str) {
        for line in text.lines() {
            self.line(format_args!("# {}", line.trim()));
        }
    }

    pub(super) fn header(&mut self, name: &str) {
        self.line(format_args!("[{name}]"));
    }

    /// Writes text that is TOML already.
    pub(super) fn raw(&mut self, text: &str) {
        self.line(text.trim_end());
    }

    /// Writes a field with its explanation.
    pub(super) fn value(&mut self, field: &Field, value: impl Display) {
        self.comment(field.about);
        self.bare(field, value);
    }

    /// Writes a field with its explanation; its value is text.
    pub(super) fn text(&mut self, field: &Field, value: impl Display) {
        self.comment(field.about);
        self.bare_text(field, value);
    }

    /// Writes a field with its explanation; its value is a list of texts.
    pub(super) fn texts(&mut self, field: &Field, values: &[impl Display]) {
        let values: Vec<String> = values.iter().map(quote).collect();
        self.value(field, format_args!("[{}]", values.join(", ")));
    }

    /// Writes a field with its explanation; its value is a number of bytes.
    pub(super) fn size(&mut self, field: &Field, bytes: impl Into<u64>) {
        self.text(field, show_size(bytes.into()));
    }

    /// Writes a field without its explanation.
    pub(super) fn bare(&mut self, field: &Field, value: impl Display) {
        self.line(format_args!("{} = {value}", field.name));
    }

    /// Writes a field without its explanation; its value is text.
    pub(super) fn bare_text(&mut self, field: &Field, value: impl Display) {
        self.bare(field, quote(&value));
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

fn quote(value: &impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}
