//! The tokens of Rust source, and the items that counting brackets finds among them.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};
use std::ops::RangeInclusive;

/// A function or a struct.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    /// The line of its keyword, counted from 1.
    pub(super) line: usize,
    /// Lines of a function, named fields of a struct.
    pub(super) size: usize,
}

/// Whether the whole file is code of tests.
pub(crate) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Whether a character can be part of a name.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A name, a mark or a literal, and its line. The text of a literal is left out, but for documentation comments.
pub(super) type Token = (String, usize);

/// Text that stands for any literal.
const LITERAL: &str = "\"\"";

/// Returns the tokens of Rust source, brackets included.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, LexError> {
    // Each file is parsed on its own, so the places of the tokens of the file before are no longer needed.
    proc_macro2::extra::invalidate_current_thread_spans();
    let mut tokens = Vec::new();
    append(source.parse()?, &mut tokens);
    Ok(tokens)
}

fn append(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket | Delimiter::None => ("[", "]"),
                };
                tokens.push((open.to_owned(), line));
                append(group.stream(), tokens);
                tokens.push((close.to_owned(), group.span_close().end().line));
            }
            TokenTree::Literal(literal) => {
                // All tokens of a documentation comment have the place of the comment.
                let comment = literal.span().source_text().filter(|text| text.starts_with("//"));
                tokens.push((comment.unwrap_or_else(|| LITERAL.to_owned()), line));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => tokens.push((tree.to_string(), line)),
        }
    }
}

/// Returns the index of the token that closes the bracket at `open`.
pub(super) fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, (token, _)) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth = depth.saturating_add(1),
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns all functions that have a body.
pub(super) fn functions(tokens: &[Token]) -> Vec<Item> {
    let lines = |at: usize| {
        let (_, first) = tokens.get(at)?;
        Some(body_end(tokens, at)?.saturating_sub(*first).saturating_add(1))
    };
    items(tokens, "fn", lines)
}

/// Returns all structs with named fields. Each colon outside paths and inner brackets is a field.
pub(super) fn structs(tokens: &[Token]) -> Vec<Item> {
    items(tokens, "struct", |at| fields(tokens, at))
}

/// Returns the items behind a keyword that have a size, which `size` finds from the index of the keyword.
fn items(tokens: &[Token], keyword: &str, size: impl Fn(usize) -> Option<usize>) -> Vec<Item> {
    let item = |(at, pair): (usize, &[Token])| match pair {
        [(found, line), (name, _)] if found == keyword && name.chars().all(is_word) => {
            Some(Item { name: name.clone(), line: *line, size: size(at)? })
        }
        _ => None,
    };
    tokens.windows(2).enumerate().filter_map(item).collect()
}

/// Returns the last line of the body of the item at `at`; `None` when it has no body.
fn body_end(tokens: &[Token], at: usize) -> Option<usize> {
    let mut i = at;
    loop {
        match tokens.get(i)?.0.as_str() {
            "(" | "[" => i = closing(tokens, i)?,
            "{" => {
                return closing(tokens, i).and_then(|end| tokens.get(end)).map(|(_, line)| *line);
            }
            ";" => return None,
            _ => {}
        }
        i = i.saturating_add(1);
    }
}

/// Returns the number of named fields of the struct at `at`; `None` for a struct without braces.
fn fields(tokens: &[Token], at: usize) -> Option<usize> {
    let open = (at..tokens.len()).find(|i| matches!(text(tokens, *i), "{" | "(" | ";"))?;
    if text(tokens, open) != "{" {
        return None;
    }
    let end = closing(tokens, open)?;
    let (mut fields, mut i) = (0usize, open.saturating_add(1));
    while i < end {
        match text(tokens, i) {
            "(" | "[" | "{" => i = closing(tokens, i)?,
            ":" if text(tokens, i.saturating_add(1)) == ":" => i = i.saturating_add(1),
            ":" => fields = fields.saturating_add(1),
            _ => {}
        }
        i = i.saturating_add(1);
    }
    Some(fields)
}

/// Returns all functions with the attribute `#[test]`: the line of the attribute, and the name.
pub(super) fn tests(tokens: &[Token]) -> Vec<(usize, &str)> {
    let mut tests = Vec::new();
    for at in (0..tokens.len()).filter(|at| are(tokens, *at, &["#", "[", "test", "]"])) {
        let function = tokens.iter().skip(at).position(|(token, _)| token == "fn");
        let name = function.and_then(|ahead| tokens.get(at.saturating_add(ahead).saturating_add(1)));
        // A macro that makes tests has `$name` here.
        if let (Some((name, _)), Some((_, line))) = (name.filter(|(name, _)| name != "$"), tokens.get(at)) {
            tests.push((*line, name.as_str()));
        }
    }
    tests
}

/// Returns the lines of each item with a body that is compiled for tests alone.
pub(super) fn test_regions(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let starts = (0..tokens.len()).filter(|at| are(tokens, *at, &ATTRIBUTE));
    let region = |at: usize| {
        let (_, first) = tokens.get(at)?;
        Some(*first..=body_end(tokens, at.saturating_add(ATTRIBUTE.len()))?)
    };
    starts.filter_map(region).collect()
}

/// Returns the text of the token at `at`, which is empty behind the last one.
pub(super) fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |(token, _)| token)
}

/// Whether the tokens from `at` on are the expected ones.
pub(super) fn are(tokens: &[Token], at: usize, expected: &[&str]) -> bool {
    let found = tokens.iter().skip(at).map(|(token, _)| token.as_str());
    found.take(expected.len()).eq(expected.iter().copied())
}
