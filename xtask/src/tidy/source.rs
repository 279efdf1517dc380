//! Rust source with blanked comments and literals, and the items that counting brackets finds in it.

use std::ops::RangeInclusive;

/// A function and its place, in lines counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

/// A struct with named fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) fields: usize,
}

/// A test and the line of its attribute.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) line: usize,
}

/// Whether the whole file is code of tests.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Blanks comments and the contents of literals. Every character keeps its place, and every line its number.
pub(super) fn blank(source: &str) -> Vec<char> {
    Scanner::scan(source).out
}

/// Returns line comments with their slashes, each with its line.
pub(super) fn comments(source: &str) -> Vec<(usize, String)> {
    let scanner = Scanner::scan(source);
    let (mut line, mut at) = (1usize, 0usize);
    let mut comments = Vec::new();
    for start in scanner.comments {
        let before = scanner.source.get(at..start).unwrap_or_default();
        line = line.saturating_add(before.iter().filter(|c| **c == '\n').count());
        at = start;
        let rest = scanner.source.iter().skip(start);
        comments.push((line, rest.take_while(|c| **c != '\n').collect()));
    }
    comments
}

struct Scanner {
    source: Vec<char>,
    at: usize,
    out: Vec<char>,
    /// Beginnings of line comments.
    comments: Vec<usize>,
}

impl Scanner {
    fn scan(source: &str) -> Self {
        let source: Vec<char> = source.chars().collect();
        let out = Vec::with_capacity(source.len());
        let mut scanner = Self { source, at: 0, out, comments: Vec::new() };
        while !scanner.done() {
            scanner.step();
        }
        scanner
    }

    fn peek(&self, ahead: usize) -> char {
        self.source.get(self.at.saturating_add(ahead)).copied().unwrap_or('\0')
    }

    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            self.out.push(self.peek(0));
            self.at = self.at.saturating_add(1);
        }
    }

    fn blank(&mut self) {
        let c = self.peek(0);
        self.out.push(if c == '\n' { '\n' } else { ' ' });
        self.at = self.at.saturating_add(1);
    }

    fn done(&self) -> bool {
        self.at >= self.source.len()
    }

    fn step(&mut self) {
        let in_word = self.out.last().is_some_and(|c| is_word(*c));
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                self.comments.push(self.at);
                while !self.done() && self.peek(0) != '\n' {
                    self.blank();
                }
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.text(),
            ('r', '"' | '#') if !in_word => self.raw_text(1),
            ('b', '"' | '\'') if !in_word => self.keep(1),
            ('b', 'r') if !in_word && matches!(self.peek(2), '"' | '#') => self.raw_text(2),
            ('\'', _) => self.character_or_lifetime(),
            _ => self.keep(1),
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while !self.done() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth = depth.saturating_add(1),
                ('*', '/') => depth = depth.saturating_sub(1),
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn text(&mut self) {
        self.keep(1);
        while !self.done() && self.peek(0) != '"' {
            if self.peek(0) == '\\' {
                self.blank();
            }
            self.blank();
        }
        self.keep(1);
    }

    /// Blanks raw text. `prefix` is the length of `r` or `br`. A raw name (`r#type`) is kept.
    fn raw_text(&mut self, prefix: usize) {
        let rest = self.source.iter().skip(self.at.saturating_add(prefix));
        let hashes = rest.take_while(|c| **c == '#').count();
        self.keep(prefix.saturating_add(hashes));
        if self.peek(0) != '"' {
            return;
        }
        self.keep(1);
        let closes = |scanner: &Self| scanner.peek(0) == '"' && (1..=hashes).all(|i| scanner.peek(i) == '#');
        while !self.done() && !closes(self) {
            self.blank();
        }
        self.keep(hashes.saturating_add(1));
    }

    fn character_or_lifetime(&mut self) {
        let escaped = self.peek(1) == '\\';
        self.keep(1);
        if escaped {
            self.blank();
            self.blank();
            while !self.done() && self.peek(0) != '\'' {
                self.blank();
            }
            self.keep(1);
        } else if self.peek(1) == '\'' {
            self.blank();
            self.keep(1);
        }
    }
}

/// Whether a character can be part of a name.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns names and single other characters, each with its line.
pub(super) fn tokens(blanked: &[char]) -> Vec<(String, usize)> {
    let mut tokens: Vec<(String, usize)> = Vec::new();
    let (mut line, mut glued) = (1usize, false);
    for c in blanked {
        if is_word(*c) {
            match tokens.last_mut() {
                Some((word, _)) if glued => word.push(*c),
                _ => tokens.push((c.to_string(), line)),
            }
            glued = true;
        } else {
            glued = false;
            if *c == '\n' {
                line = line.saturating_add(1);
            } else if !c.is_whitespace() {
                tokens.push((c.to_string(), line));
            }
        }
    }
    tokens
}

/// Returns the index of the token that closes the bracket at `open`.
pub(super) fn closing(tokens: &[(String, usize)], open: usize) -> Option<usize> {
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
pub(super) fn functions(tokens: &[(String, usize)]) -> Vec<Function> {
    let mut functions = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        let [(keyword, line), (name, _)] = pair else {
            continue;
        };
        if keyword != "fn" || !name.chars().all(is_word) {
            continue;
        }
        if let Some(end) = body_end(tokens, i) {
            functions.push(Function {
                name: name.clone(),
                line: *line,
                lines: end.saturating_sub(*line).saturating_add(1),
            });
        }
    }
    functions
}

/// Returns the last line of the body of the item at `at`; `None` when it has no body.
fn body_end(tokens: &[(String, usize)], at: usize) -> Option<usize> {
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

/// Returns all structs with named fields. Each colon outside paths and inner brackets is a field.
pub(super) fn structs(tokens: &[(String, usize)]) -> Vec<Struct> {
    let mut structs = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        let [(keyword, line), (name, _)] = pair else {
            continue;
        };
        if keyword == "struct"
            && name.chars().all(is_word)
            && let Some(fields) = fields(tokens, i)
        {
            structs.push(Struct { name: name.clone(), line: *line, fields });
        }
    }
    structs
}

/// Returns the number of named fields of the struct at `at`; `None` for a struct without braces.
fn fields(tokens: &[(String, usize)], at: usize) -> Option<usize> {
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

/// Returns all functions with the attribute `#[test]`.
pub(super) fn tests(tokens: &[(String, usize)]) -> Vec<Test> {
    let mut tests = Vec::new();
    for at in (0..tokens.len()).filter(|at| are(tokens, *at, &["#", "[", "test", "]"])) {
        let function = tokens.iter().skip(at).position(|(token, _)| token == "fn");
        let name = function.and_then(|ahead| tokens.get(at.saturating_add(ahead).saturating_add(1)));
        // A macro that makes tests has `$name` here.
        if let (Some((name, _)), Some((_, line))) = (name.filter(|(name, _)| name != "$"), tokens.get(at)) {
            tests.push(Test { name: name.clone(), line: *line });
        }
    }
    tests
}

/// Returns the lines of each item with a body that is compiled for tests alone.
pub(super) fn test_regions(tokens: &[(String, usize)]) -> Vec<RangeInclusive<usize>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let starts = (0..tokens.len()).filter(|at| are(tokens, *at, &ATTRIBUTE));
    let region = |at: usize| {
        let (_, first) = tokens.get(at)?;
        Some(*first..=body_end(tokens, at.saturating_add(ATTRIBUTE.len()))?)
    };
    starts.filter_map(region).collect()
}

fn text(tokens: &[(String, usize)], at: usize) -> &str {
    tokens.get(at).map_or("", |(token, _)| token)
}

fn are(tokens: &[(String, usize)], at: usize, expected: &[&str]) -> bool {
    let found = tokens.iter().skip(at).map(|(token, _)| token.as_str());
    found.take(expected.len()).eq(expected.iter().copied())
}
