//! lifeform
