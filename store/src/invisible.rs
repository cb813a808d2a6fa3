//! Characters that people do not see.

/// Returns `true` for a character that people do not see but models read.
///
/// ```
/// assert!(store::is_invisible('\u{200b}') && !store::is_invisible('a'));
/// ```
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
