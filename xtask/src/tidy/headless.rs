//! Counts sentences and test names that begin with a clause instead of a noun (STYLE.md, "Sentences").
//!
//! The numbers in `tidy.toml` under `[headless]` may only shrink. Three kinds of text are inspected:
//!
//! * Documentation comments of all code but tests. Each beginning of a sentence counts, not only the first.
//! * Names of tests.
//! * Documents: README, ARCHITECTURE, CONTRIBUTING and all pages under `docs/`. Headings, tables and fenced text do not
//!   count.

use super::config::{Config, Headless};
use super::rust::crate_of;
use super::source::{is_test, is_word, test_regions, tests, tokens};
use super::{Findings, Repository};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Openings that leave the subject of a sentence without a noun. A question may begin so.
const NOUNLESS: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whomever", "whose", "how", "so many", "so much", "so few",
];
/// Openings of a subordinate clause. They are harmless where a comma ends the clause and the main clause follows.
const SUBORDINATE: &[&str] = &[
    "where",
    "wherever",
    "when",
    "whenever",
    "why",
    "since when",
    "as many",
    "as much",
    "as few",
    "as long",
    "as often",
    "as far",
    "as soon",
    "so long",
    "so often",
    "so far",
];
/// Words that may stand before either, as in "of what", "to whom" or "after so long".
const PREPOSITIONS: &[&str] = &[
    "after", "at", "behind", "beyond", "by", "for", "from", "in", "of", "on", "through", "to", "until",
    "with", "without",
];
/// Marks around a word that belong neither to it nor to the end of a sentence.
const MARKS: &[char] = &['*', '_', '(', ')', '[', ']', '"', '«', '»'];
const SENTENCE_ENDS: &[char] = &['.', '!', '?', ':', ';'];

/// The name of the documents among the crates.
const DOCUMENTS: &str = "documents";
const ROOT_DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The places of one crate, each as `path:line: text`.
#[derive(Default)]
struct Places {
    docs: Vec<String>,
    tests: Vec<String>,
}

/// Compares the places of each crate with the numbers in `tidy.toml`.
pub(super) fn check(repository: &Repository, config: &Config, findings: &mut Findings) {
    let places = places(repository);
    let names: BTreeSet<&String> = places.keys().chain(config.headless.keys()).collect();
    let (no_places, zero) = (Places::default(), Headless::default());
    for name in names {
        let found = places.get(name).unwrap_or(&no_places);
        let allowed = config.headless.get(name).unwrap_or(&zero);
        compare(name, "docs", &found.docs, allowed.docs, findings);
        compare(name, "tests", &found.tests, allowed.tests, findings);
    }
}

/// Formats the places of one crate, or of the documents, one on each line.
pub(super) fn list(repository: &Repository, name: &str) -> String {
    let places = places(repository).remove(name).unwrap_or_default();
    let mut text = String::new();
    for place in places.docs.iter().chain(&places.tests) {
        let _ = writeln!(text, "{place}");
    }
    let _ = writeln!(text, "{name} = {{ docs = {}, tests = {} }}", places.docs.len(), places.tests.len());
    text
}

fn compare(name: &str, kind: &str, places: &[String], allowed: usize, findings: &mut Findings) {
    let found = places.len();
    if found > allowed {
        findings.push(format!(
            "{name}: {found} {kind} begin without a noun; at most {allowed} (STYLE.md, Sentences):\n{}",
            places.join("\n")
        ));
    } else if found < allowed {
        findings.push(format!(
            "tidy.toml: [headless] {name} allows {allowed} {kind}, {found} are left: lower the number to {found}"
        ));
    }
}

fn places(repository: &Repository) -> BTreeMap<String, Places> {
    let mut all: BTreeMap<String, Places> = BTreeMap::new();
    for (path, text) in repository.ending(".rs") {
        let tokens = tokens(text).unwrap_or_default();
        let of = all.entry(crate_of(path).to_owned()).or_default();
        let names = tests(&tokens).into_iter().filter(|(_, name)| is_headless_name(name));
        of.tests.extend(names.map(|(line, name)| format!("{path}:{line}: {name}")));
        if !is_test(path) {
            let regions = test_regions(&tokens);
            let in_test = |line: usize| regions.iter().any(|region| region.contains(&line));
            let docs = tokens.iter().filter_map(|(text, line)| Some((*line, documentation(text)?)));
            let docs = docs.filter(|(line, _)| !in_test(*line));
            of.docs.extend(headless(path, docs));
        }
    }
    for (path, text) in repository.ending(".md") {
        if ROOT_DOCUMENTS.contains(&path) || path.starts_with("docs/") {
            let lines = text.lines().enumerate().map(|(i, line)| (i.saturating_add(1), line));
            all.entry(DOCUMENTS.to_owned()).or_default().docs.extend(headless(path, lines));
        }
    }
    all.retain(|_, places| !places.docs.is_empty() || !places.tests.is_empty());
    all
}

/// Returns the text of a documentation comment; `None` for any other token.
fn documentation(token: &str) -> Option<&str> {
    token.strip_prefix("//!").or_else(|| token.strip_prefix("///"))
}

fn headless<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    let sentences = sentences(lines).into_iter().filter(|(_, text)| is_headless(text));
    sentences.map(|(line, text)| format!("{path}:{line}: {text}")).collect()
}

/// Splits numbered lines into sentences, each with the line on which it begins. A sentence ends at a mark that a capital or code follows. It also ends with its
/// paragraph or list item, and at a gap of line numbers.
fn sentences<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut sentences: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut is_open, mut expected) = (false, false, 0);
    for (line, text) in lines {
        if line != expected {
            (fenced, is_open) = (false, false);
        }
        expected = line.saturating_add(1);
        let text = text.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        if fence || fenced || text.is_empty() || text.starts_with(['|', '#']) {
            is_open = false;
            continue;
        }
        let item = list_item(text);
        is_open &= item == text;
        for word in item.split_whitespace() {
            match sentences.last_mut() {
                Some((_, last)) if is_open && !(ends_sentence(last) && begins_sentence(word)) => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => sentences.push((line, word.to_owned())),
            }
            is_open = true;
        }
    }
    sentences
}

/// Returns the text without the mark of a list item or of a quotation.
fn list_item(text: &str) -> &str {
    let marked = ["* ", "- ", "> "].iter().find_map(|mark| text.strip_prefix(mark));
    let numbered = || {
        let (number, rest) = text.split_once(". ")?;
        number.chars().all(|c| c.is_ascii_digit()).then_some(rest)
    };
    marked.or_else(numbered).unwrap_or(text)
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(MARKS).ends_with(SENTENCE_ENDS)
}

fn begins_sentence(word: &str) -> bool {
    word.trim_start_matches(MARKS).starts_with(|c: char| c.is_uppercase() || c == '`')
}

fn is_headless(sentence: &str) -> bool {
    let text = sentence.trim_start_matches(MARKS).to_lowercase();
    let is_question = text.contains('?');
    let has_main_clause = text.contains(',');
    !is_question && (begins(&text, NOUNLESS) || !has_main_clause && begins(&text, SUBORDINATE))
}

/// Whether the name of a test has no noun at its beginning. A name has no comma that would show a main clause, so the
/// subordinate openings do not count. A rule at the beginning (`p3_`) is no part of the sentence.
fn is_headless_name(name: &str) -> bool {
    let is_rule = |word: &str| {
        let number = word.strip_prefix(|c: char| c.is_ascii_lowercase()).unwrap_or_default();
        !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
    };
    let sentence = name.split_once('_').filter(|(first, _)| is_rule(first)).map_or(name, |(_, rest)| rest);
    begins(&sentence.replace('_', " "), NOUNLESS)
}

/// Whether lower-case `text` begins with one of the openings, with or without a preposition before it.
fn begins(text: &str, openings: &[&str]) -> bool {
    let after = |word: &&str| text.strip_prefix(word)?.strip_prefix(' ');
    let bare = PREPOSITIONS.iter().find_map(after).unwrap_or(text);
    let begins =
        |text: &str, opening: &str| text.strip_prefix(opening).is_some_and(|rest| !rest.starts_with(is_word));
    openings.iter().any(|opening| begins(text, opening) || begins(bare, opening))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_sentences_are_recognised() {
        for sentence in [
            "What waits.",
            "Who sent it.",
            "Whoever asks, waits.",
            "**What** it does.",
            "(Whose vote it is.)",
            "Of what too much waits.",
            "After so long a request expires.",
            "So many bytes.",
            "How long it waits, at most.",
            "Where it lies.",
            "Why.",
            "When the disk fails.",
            "Since when it waits.",
            "As many as fit.",
        ] {
            assert!(is_headless(sentence), "{sentence}");
        }
        for sentence in [
            "Whole blocks.",
            "However long it takes.",
            "Whether it waits.",
            "Whereas others wait.",
            "What does it do?",
            "When the disk fails, the replica stops.",
            "Where leaders rotate, a replica sends to all.",
            "As soon as it is durable, it leaves.",
            "The peer that sent it.",
            "A block, and what it names.",
            "In order of arrival.",
        ] {
            assert!(!is_headless(sentence), "{sentence}");
        }
    }

    #[test]
    fn headless_test_names_are_recognised() {
        for name in
            ["what_waits_travels_together", "of_what_is_dear_one_passes", "r14_who_forgets_answers", "how"]
        {
            assert!(is_headless_name(name), "{name}");
        }
        for name in
            ["whole_blocks_pass", "when_full_the_oldest_goes", "r14_votes_wait", "sha256_what_is_it", "a_who"]
        {
            assert!(!is_headless_name(name), "{name}");
        }
    }

    #[test]
    fn sentences_are_split_with_their_lines() {
        let text = "A first\nsentence. The `x.y`\nsecond: lower; `code`.\n\n* an item\n  continued\n2. Item\n| a | b |\n# T\n```\ncode\n```\nlast (e.g. x).";
        let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
        let found = sentences(lines);
        let expected = [
            (1, "A first sentence."),
            (2, "The `x.y` second: lower;"),
            (3, "`code`."),
            (5, "an item continued"),
            (7, "Item"),
            (13, "last (e.g. x)."),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
        let gap = sentences([(1, "one"), (2, "```"), (4, "two")].into_iter());
        assert_eq!(gap.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 4]);
    }
}
