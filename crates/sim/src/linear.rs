//! Whether calls that overlapped can be explained by one object that did them one after the other: the search of
//! Wing and Gong with Lowe's memory of where it has been.
//!
//! Each call takes effect at one moment between its call and its answer. One without an answer may take effect at
//! any time after its call, or never. Two calls whose times touch (an answer and the other call at one moment) overlap
//! where they are of two clients. One client's own calls are in order there too: it made the second when it had the
//! answer to the first. [`search`] looks for an order of all answered calls that respects this and in
//! which the object answers what was seen. What it has tried, as the set of calls done and the state they led to,
//! it never tries again. It knows no service: [`Sequential`] is one; [`judge`] is for the key-value store.
//!
//! Three things keep it short without losing an order: what fits and never changes anything is done at once; where a
//! call does not fit and nothing that may come before it leaves what it fits to is a dead end; a call without an
//! answer is done only where it makes a difference to the next.
//!
//! Deciding this is hard in the worst case, so the search has a budget, and says so when that was too small.

mod register;
#[cfg(test)]
mod tests;

pub use register::{Findings, Illegal, is_explained_by, judge, judge_from};

use quorate_types::Time;
use std::collections::BTreeSet;

/// Configurations that a search may look at for one object before it gives up: seconds.
pub const BUDGET: u64 = 4_000_000;
/// Calls before the place where a search got stuck that are shown.
const SHOWN: usize = 4;

/// An object that does one thing after the other.
pub trait Sequential {
    /// What it holds.
    type State: Clone + Ord;
    /// What was called, and what was answered as far as it is known.
    type Call;
    /// What the object holds after a call; `None` when it would have answered otherwise.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;
    /// What a call leaves the object with, whatever it held before.
    fn leaves(&self, call: &Self::Call) -> Leaves<Self::State>;
}

/// What a call leaves an object with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaves<S> {
    /// What it held.
    Same,
    /// This.
    This(S),
    /// That depends on what it held.
    Anything,
}

/// A call and when it could take effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span<C> {
    /// Who called.
    pub client: usize,
    /// When it was called.
    pub call: Time,
    /// When its answer came; `None`: it has none, and may never take effect.
    pub answered: Option<Time>,
    /// What was called and answered.
    pub what: C,
}

impl<C> Span<C> {
    /// Whether this call comes before another of the same client although their times touch. Of two calls that both
    /// begin and end at one moment nothing is known.
    fn touches(&self, next: &Self) -> bool {
        self.client == next.client
            && self.answered == Some(next.call)
            && next.answered.is_none_or(|end| end > self.call)
    }
}

/// What a search came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judgement<S> {
    /// There is an order.
    Ok,
    /// There is none.
    Illegal(Stuck<S>),
    /// The budget is used up.
    Undecided,
}

/// The furthest that any order got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck<S> {
    /// How many answered calls it has explained.
    pub explained: usize,
    /// The last of them, by place in what was searched.
    pub before: Vec<usize>,
    /// What the object holds after them.
    pub state: S,
    /// Calls one of which would have to come next; none leads on.
    pub next: Vec<usize>,
}

/// The calls that are done. Answered calls are numbered in the order of their calls; then come the others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Done {
    /// All answered calls before this one.
    all_before: usize,
    /// Further ones, in order. Few: those that overlap.
    beyond: Vec<usize>,
}

impl Done {
    fn contains(&self, call: usize) -> bool {
        call < self.all_before || self.beyond.binary_search(&call).is_ok()
    }

    /// One more, out of so many that were answered.
    fn with(&self, call: usize, answered: usize) -> Self {
        let mut beyond = self.beyond.clone();
        if let Err(at) = beyond.binary_search(&call) {
            beyond.insert(at, call);
        }
        let runs = (self.all_before..answered).zip(&beyond).take_while(|(a, b)| a == *b).count();
        beyond.drain(..runs);
        Self { all_before: self.all_before.saturating_add(runs), beyond }
    }
}

/// How far an order got, and what is still to be tried there.
struct Place<S> {
    done: Done,
    state: S,
    /// The call that led here.
    last: Option<usize>,
    /// What the object held before that call, if the call need not have happened.
    without: Option<S>,
    candidates: Vec<usize>,
    tried: usize,
}

/// A call as the search numbers it.
struct Known<'a, O: Sequential> {
    /// Its place in what was handed in.
    at: usize,
    span: &'a Span<O::Call>,
    leaves: Leaves<O::State>,
}

/// A search among calls that are numbered anew.
struct Search<'a, O: Sequential> {
    object: &'a O,
    /// Answered ones in the order of their calls, then the others.
    calls: Vec<Known<'a, O>>,
    answered: usize,
}

impl<'a, O: Sequential> Search<'a, O> {
    fn new(object: &'a O, spans: &'a [Span<O::Call>]) -> Self {
        let known =
            |(at, span): (usize, &'a Span<O::Call>)| Known { at, span, leaves: object.leaves(&span.what) };
        let mut calls: Vec<Known<'a, O>> = spans.iter().enumerate().map(known).collect();
        calls.sort_by_key(|known| (known.span.answered.is_none(), known.span.call, known.at));
        let answered = calls.partition_point(|known| known.span.answered.is_some());
        Self { object, calls, answered }
    }

    fn step(&self, state: &O::State, call: usize) -> Option<O::State> {
        self.calls.get(call).and_then(|known| self.object.step(state, &known.span.what))
    }

    /// Calls that may come next: no call that is not done was answered before they were called.
    fn candidates(&self, done: &Done, state: &O::State) -> Vec<usize> {
        let mut candidates = Vec::new();
        let mut until = Time::MAX;
        for (call, known) in self.calls.iter().enumerate().take(self.answered).skip(done.all_before) {
            if known.span.call > until {
                break;
            }
            if !done.contains(call) {
                until = until.min(known.span.answered.unwrap_or(Time::MAX));
                candidates.push(call);
            }
        }
        let first: Vec<&Span<O::Call>> = candidates
            .iter()
            .filter_map(|call| self.calls.get(*call).map(|known| known.span))
            .filter(|span| span.answered == Some(until))
            .collect();
        let in_time = |call: &usize| {
            self.calls.get(*call).is_some_and(|known| {
                known.span.call < until
                    || known.span.call == until && !first.iter().any(|span| span.touches(known.span))
            })
        };
        candidates.retain(in_time);
        // What never changes anything and fits here may as well come here, and then nothing else need be tried.
        let is_harmless = |call: usize| {
            self.calls.get(call).is_some_and(|known| known.leaves == Leaves::Same)
                && self.step(state, call).is_some()
        };
        if let Some(call) = candidates.iter().find(|call| is_harmless(**call)) {
            return vec![*call];
        }
        let open = self.answered..self.calls.len();
        candidates.extend(open.filter(|call| !done.contains(*call) && in_time(call)));
        candidates
    }

    /// Whether a call does not fit here, nor after anything that may still come before it.
    fn is_hopeless(&self, done: &Done, state: &O::State, call: usize) -> bool {
        let Some(Known { span, .. }) = self.calls.get(call) else { return false };
        if span.answered.is_none() || self.step(state, call).is_some() {
            return false;
        }
        let end = span.answered.unwrap_or(Time::MAX);
        let helps = |other: usize, known: &Known<'_, O>| {
            let fits = || match &known.leaves {
                Leaves::Same => false,
                Leaves::This(state) => self.step(state, call).is_some(),
                Leaves::Anything => true,
            };
            other != call && known.span.call <= end && !done.contains(other) && fits()
        };
        let calls = self.calls.iter().enumerate();
        let answered = calls.clone().take(self.answered).skip(done.all_before);
        let mut answered = answered.take_while(|(_, known)| known.span.call <= end);
        let mut open = calls.skip(self.answered);
        !answered.any(|(other, known)| helps(other, known)) && !open.any(|(other, known)| helps(other, known))
    }

    fn place(
        &self,
        done: Done,
        state: O::State,
        last: Option<usize>,
        without: Option<O::State>,
    ) -> Place<O::State> {
        let candidates = self.candidates(&done, &state);
        // Where a call can never be done from here, nothing is tried.
        let is_dead_end = candidates.iter().any(|call| self.is_hopeless(&done, &state, *call));
        let tried = if is_dead_end { candidates.len() } else { 0 };
        Place { done, state, last, without, candidates, tried }
    }

    fn given(&self, calls: impl Iterator<Item = usize>) -> Vec<usize> {
        calls.filter_map(|call| self.calls.get(call).map(|known| known.at)).collect()
    }

    fn stuck(&self, explained: usize, path: &[Place<O::State>], here: &Place<O::State>) -> Stuck<O::State> {
        let from = path.len().saturating_sub(SHOWN.saturating_sub(1));
        let before = path.get(from..).unwrap_or_default().iter().chain([here]).filter_map(|place| place.last);
        Stuck {
            explained,
            before: self.given(before),
            state: here.state.clone(),
            next: self.given(here.candidates.iter().copied()),
        }
    }

    fn run(&self, begin: O::State, budget: u64) -> Judgement<O::State> {
        let mut tried: BTreeSet<(Done, O::State, Option<O::State>)> = BTreeSet::new();
        let mut path: Vec<Place<O::State>> = Vec::new();
        let mut here = self.place(Done::default(), begin, None, None);
        let mut furthest = self.stuck(0, &path, &here);
        let mut left = budget;
        loop {
            if here.done.all_before == self.answered {
                return Judgement::Ok;
            }
            let Some(call) = here.candidates.get(here.tried).copied() else {
                match path.pop() {
                    Some(before) => here = before,
                    None => return Judgement::Illegal(furthest),
                }
                continue;
            };
            here.tried = here.tried.saturating_add(1);
            let Some(next) = left.checked_sub(1) else { return Judgement::Undecided };
            left = next;
            let Some(state) = self.step(&here.state, call) else { continue };
            // The call before this one need not have happened, and makes no difference to this one.
            if here.without.as_ref().and_then(|without| self.step(without, call)).as_ref() == Some(&state) {
                continue;
            }
            let without = (call >= self.answered).then(|| here.state.clone());
            let done = here.done.with(call, self.answered);
            if !tried.insert((done.clone(), state.clone(), without.clone())) {
                continue;
            }
            let there = self.place(done, state, Some(call), without);
            path.push(std::mem::replace(&mut here, there));
            let explained = self.explained(&here.done);
            if explained > furthest.explained {
                furthest = self.stuck(explained, &path, &here);
            }
        }
    }

    fn explained(&self, done: &Done) -> usize {
        let beyond = done.beyond.iter().filter(|call| **call < self.answered).count();
        done.all_before.saturating_add(beyond)
    }
}

/// Looks for an order of calls of an object that holds `begin` at first; at most so many configurations.
pub fn search<O: Sequential>(
    object: &O,
    begin: O::State,
    spans: &[Span<O::Call>],
    budget: u64,
) -> Judgement<O::State> {
    Search::new(object, spans).run(begin, budget)
}
