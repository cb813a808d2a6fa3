//! The functions of the language, by name. The parser, the printer and the errors read these lists; another function is
//! a line here, and its evaluation in `exec/group.rs`, `plan/test.rs` or `exec/update.rs`, which the compiler asks for.

/// Declares functions: an enum with a variant for each, its name in the language, and its number of operands.
macro_rules! functions {
    ($(#[$about:meta])+ $kind:ident { $($(#[$of:meta])+ $function:ident = $name:literal / $arity:literal),+ $(,)? }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$of])+ $function),+
        }

        impl $kind {
            /// The names of all functions.
            pub const NAMES: &[&str] = &[$($name),+];

            /// Returns the function with a name, in any case.
            pub fn named(name: &str) -> Option<Self> {
                $(if name.eq_ignore_ascii_case($name) {
                    return Some(Self::$function);
                })+
                None
            }

            /// Returns the name of the function.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$function => $name),+
                }
            }

            /// Returns the number of operands.
            pub fn arity(self) -> usize {
                match self {
                    $(Self::$function => $arity),+
                }
            }
        }
    };
}

functions! {
    /// An aggregate function of FIND.
    Aggregate {
        /// The number of values.
        Count = "COUNT" / 1,
        /// The sum of the numbers.
        Sum = "SUM" / 1,
        /// The mean of the numbers.
        Avg = "AVG" / 1,
        /// The least value.
        Min = "MIN" / 1,
        /// The greatest value.
        Max = "MAX" / 1,
    }
}

functions! {
    /// A test on text, in FILTER.
    TextTest {
        /// The text contains the other one.
        Contains = "CONTAINS" / 2,
        /// The text begins with the other one.
        StartsWith = "STARTS_WITH" / 2,
        /// The text ends with the other one.
        EndsWith = "ENDS_WITH" / 2,
        /// The text matches the regular expression.
        Regex = "REGEX" / 2,
    }
}

functions! {
    /// A function of UPDATE.
    Function {
        /// `ADD(a, b)`
        Add = "ADD" / 2,
        /// `MUL(a, b)`
        Mul = "MUL" / 2,
        /// `CLAMP(x, lo, hi)`
        Clamp = "CLAMP" / 3,
        /// `COALESCE(x, d)`
        Coalesce = "COALESCE" / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_any_case_and_printed_in_capitals() {
        for name in Aggregate::NAMES {
            let read = Aggregate::named(&name.to_lowercase()).unwrap();
            assert_eq!((read.name(), read.arity()), (*name, 1));
        }
        assert_eq!(TextTest::named("regex"), Some(TextTest::Regex));
        assert_eq!(Function::named("clamp").map(Function::arity), Some(3));
        assert_eq!(Function::named("median"), None);
    }
}
