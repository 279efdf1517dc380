//! Effects and messages as lines of text, for the assertions of tests.

use crate::effect::{Commit, Effect, Hold};
use crate::message::Message;

/// Returns a message in short: kind, view, height and subject. A message without a statement is shown whole.
#[must_use]
pub fn brief(message: &dyn Message) -> String {
    match message.auth().statement() {
        Some(said) => format!("{} v{} h{} {:?}", said.kind, said.view, said.height, said.subject),
        None => format!("{message:?}"),
    }
}

/// Returns an effect in one line.
pub(super) fn line(effect: &Effect) -> String {
    match effect {
        Effect::Record { key, .. } => {
            let scope = if key.scope.is_zero() { String::new() } else { format!(" {:?}", key.scope) };
            format!("record {} h{}{scope}", key.kind, key.height)
        }
        Effect::Reserve(kind, view) => format!("reserve {kind} v{view}"),
        Effect::Withdraw(kind, view) => format!("withdraw {kind} v{view}"),
        Effect::Send { to, hold: Hold::UntilDurable, message } => {
            format!("hold {to:?}: {}", brief(&**message))
        }
        Effect::Send { to, hold: Hold::Reserved, message } => {
            format!("reserved {to:?}: {}", brief(&**message))
        }
        Effect::Send { to, hold: Hold::No, message } => format!("send {to:?}: {}", brief(&**message)),
        Effect::Commit(Commit::At(height, id)) => format!("commit h{height} {id:?}"),
        Effect::Commit(Commit::Chain(id)) => format!("commit chain {id:?}"),
        Effect::Want(block, from) => format!("want {block:?} from {from}"),
        Effect::CatchUp(proof) => format!("catch up h{}", proof.checkpoint.height),
        Effect::Urgent(peer) => format!("urgent {peer:?}"),
        Effect::Accuse(evidence) => format!("accuse {}", evidence.by),
        Effect::Alarm(alarm) => format!("alarm: {alarm}"),
        Effect::Note(note) => format!("note {} v{} h{}", note.what, note.view, note.height),
    }
}
