//! Reasons for in-order launches: launches that the library could neither make at once nor defer. The calling
//! thread makes them in their order, and waits while the queue is suspended.

/// Creates [`SlowPath`] from rows: the variant, its name, and the explanation for users.
macro_rules! slow_paths {
    ($($variant:ident $name:literal: $why:literal;)*) => {
        /// The reason for an in-order launch.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum SlowPath {
            $(#[doc = $why] $variant,)*
        }

        impl SlowPath {
            /// All reasons. The index of each is its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name for JSON, metrics and logs.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the explanation for users, to follow "because".
            pub fn why(self) -> &'static str {
                match self {
                    $(Self::$variant => $why,)*
                }
            }
        }
    };
}

slow_paths! {
    Code "code": "the sizes of the kernel's arguments are not known";
    Attributes "attributes": "the launch has attributes that the library does not know";
    Cooperative "cooperative": "a cooperative launch is deferred only after one that is not smaller has been taken";
    Device "device": "the thread's current device is not the stream's";
    Limits "limits": "the launch is larger than the device's limits";
    Arguments "arguments": "the launch's arguments cannot be copied";
    Events "events": "the launch records an event that is not one of its device";
}

impl SlowPath {
    /// Returns the index in [`SlowPath::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Returns the reason with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_path_has_a_unique_index_and_name() {
        for (number, &reason) in SlowPath::ALL.iter().enumerate() {
            assert_eq!(reason.number(), number, "{reason:?}");
            assert_eq!(SlowPath::of_name(reason.name()), Some(reason));
            assert!(!reason.why().is_empty());
        }
        assert_eq!(SlowPath::of_name("another"), None);
    }
}
