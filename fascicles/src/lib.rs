//! fascicles
