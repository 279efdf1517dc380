//! The corpus: kept inputs, one in hex on each line of a file for each decoder.

use quorate_types::digest::{from_hex, hex};
use std::path::PathBuf;

/// Largest number of valid inputs of a file, and of their bytes: enough for each form.
const VALID_MAX: usize = 16;
const BYTES_MAX: usize = 3 << 10;

const FOUND: &str = "# found";

/// A file of the corpus.
#[derive(Default)]
pub(crate) struct Corpus {
    pub(crate) valid: Vec<Vec<u8>>,
    /// Inputs that have found something before, each with its comment.
    found: Vec<(Vec<u8>, String)>,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(format!("{name}.txt"))
}

impl Corpus {
    /// Returns the corpus of a decoder; an empty one without a file.
    pub(crate) fn load(name: &str) -> Self {
        let text = std::fs::read_to_string(file(name)).unwrap_or_default();
        let (valid, found) = text.split_once(FOUND).unwrap_or((&text, ""));
        let read = |line: &str| {
            let (digits, words) = line.split_once('#').unwrap_or((line, ""));
            let bytes = from_hex(digits.trim()).unwrap_or_else(|| panic!("{name}: not hex: {line}"));
            (bytes, words.trim().to_owned())
        };
        let lines = |text: &str| -> Vec<_> {
            let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
            lines.map(read).collect()
        };
        Self {
            valid: lines(valid).into_iter().map(|(bytes, _)| bytes).collect(),
            // The rest of the line with the heading is no input.
            found: lines(found.split_once('\n').map_or("", |(_, rest)| rest)),
        }
    }

    pub(crate) fn found(&self) -> impl Iterator<Item = &[u8]> {
        self.found.iter().map(|(bytes, _)| bytes.as_slice())
    }

    /// Writes the file with these valid inputs. Inputs that have found something stay.
    pub(crate) fn rewrite(&self, name: &str, samples: &[Vec<u8>]) {
        let mut text = "# valid\n".to_owned();
        for bytes in few(samples) {
            text += &format!("{}\n", hex(bytes));
        }
        text += &format!("{FOUND}: kept by hand, with what it was\n");
        for (bytes, words) in &self.found {
            text += &format!("{} # {words}\n", hex(bytes));
        }
        std::fs::create_dir_all(file(name).parent().unwrap()).unwrap();
        std::fs::write(file(name), text).unwrap();
    }
}

/// Selects as many inputs as fit into a file, spread over all of them.
fn few(samples: &[Vec<u8>]) -> impl Iterator<Item = &Vec<u8>> {
    let every = samples.len().div_ceil(VALID_MAX).max(1);
    let mut bytes = 0;
    samples.iter().step_by(every).filter(move |sample| {
        let fits = bytes + sample.len() <= BYTES_MAX;
        bytes += if fits { sample.len() } else { 0 };
        fits
    })
}
