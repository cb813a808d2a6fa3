//! Words: one analyzer for index and query, and an inverted index whose postings stand in order of what
//! they are worth, so that the best hits of a word in every node are found without looking at every node.

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
pub use rank::{Hit, Standing, Words, search};
