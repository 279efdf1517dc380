//! Sentences of the papers, one test each.
