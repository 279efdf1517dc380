//! Choices by name, on the command line and in files.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Returns a reader of one of these names.
pub fn choice<T: Copy + Send + Sync + 'static>(
    choices: Vec<(&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let words: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
    PossibleValuesParser::new(words).try_map(move |found| {
        let chosen = choices.iter().find(|(word, _)| *word == found);
        chosen.map(|(_, value)| *value).ok_or_else(|| format!("unknown: {found}"))
    })
}
