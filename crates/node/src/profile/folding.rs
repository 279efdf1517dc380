//! Stacks in the folded form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A stack, and its weight.
pub(super) struct Stack {
    /// The addresses of the code, innermost first. All but the innermost are return addresses.
    pub(super) places: Vec<usize>,
    /// Samples or allocations.
    pub(super) weight: u64,
}

/// The name of a function without a symbol.
const UNKNOWN: &str = "unknown";

/// Returns stacks with the names of their functions, sorted. Equal stacks are added up. A stack ends before the outermost
/// function whose name begins with one of `own`.
pub(super) fn folded(stacks: &[Stack], own: &[&str]) -> String {
    let mut names = Names::default();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.weight > 0) {
        let mut functions: Vec<String> = Vec::new();
        for (depth, place) in stack.places.iter().enumerate() {
            // A return address may already belong to the next function.
            functions.extend_from_slice(names.of(place.saturating_sub(usize::from(depth > 0))));
        }
        // The end of the stack is no function.
        while functions.last().is_some_and(|name| name == UNKNOWN) {
            functions.pop();
        }
        let is_own = |name: &String| own.iter().any(|own| name.starts_with(own));
        let first = functions.iter().rposition(is_own).map_or(0, |last| last.saturating_add(1));
        let line: Vec<&str> = functions.iter().skip(first).rev().map(String::as_str).collect();
        let sum = sums.entry(line.join(";")).or_default();
        *sum = sum.saturating_add(stack.weight);
    }
    let mut text = String::new();
    for (line, weight) in sums.iter().filter(|(line, _)| !line.is_empty()) {
        let _ = writeln!(text, "{line} {weight}");
    }
    text
}

/// The functions at addresses, as far as they were asked for.
#[derive(Default)]
struct Names(BTreeMap<usize, Vec<String>>);

impl Names {
    /// Returns the functions at an address, innermost first: several where the compiler has inlined some.
    fn of(&mut self, place: usize) -> &[String] {
        self.0.entry(place).or_insert_with(|| {
            let mut names = Vec::new();
            backtrace::resolve(std::ptr::without_provenance_mut(place), |symbol| {
                names.extend(symbol.name().map(|name| format!("{name:#}").replace([';', '\n'], ",")));
            });
            if names.is_empty() {
                names.push(UNKNOWN.to_owned());
            }
            names
        })
    }
}
