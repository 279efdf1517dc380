//! A selection of events.

use super::event::Event;
use super::lines::EVENT_NAMES;
use super::who::Who;
use quorate_types::{Height, ReplicaId, View};
use std::str::FromStr;

/// A selection of events, such as `r2,c0,h7`. Terms of one sort are alternatives; of each sort that occurs, one has
/// to match. No terms select everything.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pick {
    whos: Vec<Who>,
    views: Vec<View>,
    heights: Vec<Height>,
    /// Event names.
    words: Vec<String>,
    kinds: Vec<String>,
}

fn allows<T>(wanted: &[T], is_it: impl FnMut(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(is_it)
}

impl Pick {
    /// Whether the selection contains an event. It always contains the finding of an oracle.
    #[must_use]
    pub fn takes(&self, event: &Event) -> bool {
        let details = &event.details;
        event.what == "fails"
            || (allows(&self.whos, |who| concerns(event, *who))
                && allows(&self.views, |view| details.view == Some(*view))
                && allows(&self.heights, |height| details.height == Some(*height))
                && allows(&self.words, |word| word == event.what)
                && allows(&self.kinds, |kind| *kind == details.kind))
    }
}

/// Whether the event is by somebody, or happens to somebody in the world.
fn concerns(event: &Event, who: Who) -> bool {
    let is_ours = event.details.from == Some(who) || event.details.to.contains(&who);
    event.who == who || (event.who == Who::World && is_ours)
}

impl FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pick = Self::default();
        for term in text.split(',').map(str::trim) {
            let number = |sort: char| term.strip_prefix(sort).and_then(|rest| rest.parse::<u64>().ok());
            if term.is_empty() {
                return Err("expected a term between two commas".to_owned());
            } else if term == "world" {
                pick.whos.push(Who::World);
            } else if let Some(id) = number('r').and_then(|id| u16::try_from(id).ok()) {
                pick.whos.push(Who::Replica(ReplicaId(id)));
            } else if let Some(index) = number('c').and_then(|index| usize::try_from(index).ok()) {
                pick.whos.push(Who::Client(index));
            } else if let Some(view) = number('v') {
                pick.views.push(View(view));
            } else if let Some(height) = number('h') {
                pick.heights.push(Height(height));
            } else if EVENT_NAMES.iter().any(|(word, _)| *word == term) {
                pick.words.push(term.to_owned());
            } else {
                pick.kinds.push(term.to_owned());
            }
        }
        Ok(pick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::EventDetails;
    use quorate_types::Time;

    const R1: Who = Who::Replica(ReplicaId(1));
    const R2: Who = Who::Replica(ReplicaId(2));

    fn event(who: Who, what: &'static str, details: EventDetails) -> Event {
        Event { at: Time(1), who, what, number: None, details }
    }

    #[test]
    fn terms_of_one_sort_are_alternatives_and_all_sorts_must_match() {
        let vote = |view, height| EventDetails::kind("vote").at(Some(View(view)), Some(Height(height)));
        let events = [
            event(R1, "sends", vote(0, 7).to([R2])),
            event(R2, "gets", vote(0, 7).from(R1)),
            event(R2, "refuses", vote(1, 8).from(R1)),
            event(Who::World, "loses", vote(1, 8).from(R1).to([R2])),
            event(Who::Client(0), "calls", EventDetails::text("#1")),
            event(Who::World, "fails", EventDetails::text("agreement")),
        ];
        for (terms, taken) in [
            ("r1", &[0, 3, 5][..]),
            ("r2", &[1, 2, 3, 5]),
            ("r1, c0", &[0, 3, 4, 5]),
            ("world", &[3, 5]),
            ("h8", &[2, 3, 5]),
            ("r2,h7", &[1, 5]),
            ("v0,gets,refuses", &[1, 5]),
            ("vote", &[0, 1, 2, 3, 5]),
            ("prepare", &[5]),
        ] {
            let pick: Pick = terms.parse().unwrap();
            let found: Vec<usize> = (0..events.len()).filter(|at| pick.takes(&events[*at])).collect();
            assert_eq!(found, taken, "{terms}");
        }
        assert!(events.iter().all(|event| Pick::default().takes(event)));
        assert!("r1,,r2".parse::<Pick>().is_err() && "".parse::<Pick>().is_err());
    }
}
