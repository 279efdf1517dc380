//! Rust source with comments and the contents of literals blanked out, and what can be found in it by
//! counting brackets.

/// A function and where it stands, in lines counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

/// Blanks comments and the contents of literals. Every character keeps its place, and every line its number.
pub(super) fn blank(source: &str) -> Vec<char> {
    let mut scanner =
        Scanner { source: source.chars().collect(), at: 0, out: Vec::with_capacity(source.len()) };
    while scanner.at < scanner.source.len() {
        scanner.step();
    }
    scanner.out
}

struct Scanner {
    source: Vec<char>,
    at: usize,
    out: Vec<char>,
}

impl Scanner {
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

    /// `prefix` is the length of `r` or `br`. What only looks like raw text (`r#type`) is kept.
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

/// Names and single other characters, each with its line.
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

/// The index of the token that closes the bracket at `open`.
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

/// All functions that have a body.
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

/// The line on which the body of the function at `at` ends; `None` when it has none.
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
