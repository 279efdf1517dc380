//! Kinds of messages and of the statements in them.

use quorate_types::Kind;

/// Statement of a PRE-PREPARE.
pub const PRE_PREPARE: Kind = Kind::new("pre-prepare");
/// Statement of a PREPARE.
pub const PREPARE: Kind = Kind::new("prepare");
/// Statement of a COMMIT.
pub const COMMIT: Kind = Kind::new("commit");
/// Statement of a VIEW-CHANGE.
pub const VIEW_CHANGE: Kind = Kind::new("view-change");
/// Statement of a NEW-VIEW.
pub const NEW_VIEW: Kind = Kind::new("new-view");
/// Statement of a SUSPECT, which may be withdrawn.
pub const SUSPECT: Kind = Kind::new("suspect");
/// All kinds of statements.
pub(super) const STATEMENTS: [Kind; 6] = [PRE_PREPARE, PREPARE, COMMIT, VIEW_CHANGE, NEW_VIEW, SUSPECT];
/// Kind of an ENTRY, which makes no statement of its sender: others have signed everything in it.
pub const ENTRY: Kind = Kind::new("entry");
/// Kind of a STATUS, which makes no statement.
pub const STATUS: Kind = Kind::new("status");
