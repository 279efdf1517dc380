//! # quorate-history
//!
//! Histories of clients, their file format, and the search that decides whether a history is linearizable.
//!
//! * [`Op`] and [`Model`]: the operations of the key-value store and a naive store that gives the expected results.
//! * [`Record`] and [`History`]: operations with the times of call and answer, as JSON lines that any checker reads.
//! * [`search`](search()): the linearizability search over any [`Sequential`] object.
//! * [`judge`]: the search for the key-value store, key by key.
//!
//! Deliberately not here: replicas, protocols and the simulator. A judge shares no code with the system that it judges.
//!
//! ```
//! use quorate_history::{History, Op, judge};
//! use quorate_app::KvResult;
//! use quorate_types::Time;
//!
//! let mut history = History::default();
//! let key = || "k".to_owned();
//! let put = history.call(Time(1), 0, Op::Put { key: key(), value: "v".to_owned() });
//! history.answer(Time(2), put, KvResult::Done);
//! let get = history.call(Time(3), 1, Op::Get { key: key() });
//! history.answer(Time(4), get, KvResult::Absent);
//! assert!(!judge(history.records()).is_ok(), "the value is lost");
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod history;
mod operation;
mod record;
mod search;
mod store;

pub use history::{BadHistory, Call, History};
pub use operation::{Model, Op, result_text};
pub use record::{OpId, Record, quoted};
pub use search::{BUDGET, Judgement, Leaves, Sequential, Span, Stuck, search};
pub use store::{Findings, Illegal, is_explained_by, judge, judge_from};
