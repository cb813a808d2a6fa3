//! Full-text search: one analyzer for index and query, and an inverted index whose postings are in order of score.
//! The best hits of a word are therefore found without visiting every element.

mod analyzer;
mod fuzzy;
mod gist;
mod index;
mod late;
mod rank;
mod runs;
mod scores;

pub use analyzer::{terms, terms_of_query};
pub use gist::{GIST_CHARS_MAX, gist_of};
pub use index::{Gathered, Index, LEVELS_MAX, words_of};
pub use late::Lexicon;
pub use rank::{Hit, Postings, Words, search};
