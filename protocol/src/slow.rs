//! Reasons for in-order launches: launches that the library could neither make at once nor defer. The calling
//! thread makes them in their order, and waits while the queue is suspended.

/// The reason for an in-order launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlowPath {
    /// The kernel's arguments are unknown.
    Code,
    /// The launch has attributes of unknown meaning.
    Attributes,
    /// The launch is cooperative, and larger than any that the runtime has accepted before.
    Cooperative,
    /// The thread's current device differs from the stream's.
    Device,
    /// The launch exceeds the device's limits.
    Limits,
    /// The arguments could not be copied.
    Arguments,
    /// The launch records an event of another device, or a destroyed event.
    Events,
}

impl SlowPath {
    /// All reasons. The index of each is its number.
    pub const ALL: [Self; 7] = [
        Self::Code,
        Self::Attributes,
        Self::Cooperative,
        Self::Device,
        Self::Limits,
        Self::Arguments,
        Self::Events,
    ];

    /// Returns the index in [`SlowPath::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Returns the name for JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Attributes => "attributes",
            Self::Cooperative => "cooperative",
            Self::Device => "device",
            Self::Limits => "limits",
            Self::Arguments => "arguments",
            Self::Events => "events",
        }
    }

    /// Returns the reason with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the explanation for users, to follow "because".
    pub fn why(self) -> &'static str {
        match self {
            Self::Code => "the sizes of the kernel's arguments are not known",
            Self::Attributes => "the launch has attributes that the library does not know",
            Self::Cooperative => {
                "a cooperative launch is deferred only after one that is not smaller has been taken"
            }
            Self::Device => "the thread's current device is not the stream's",
            Self::Limits => "the launch is larger than the device's limits",
            Self::Arguments => "the launch's arguments cannot be copied",
            Self::Events => "the launch records an event that is not one of its device",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_path_has_a_unique_index_and_name() {
        for (number, reason) in SlowPath::ALL.into_iter().enumerate() {
            assert_eq!(reason.number(), number, "{reason:?}");
            assert_eq!(SlowPath::of_name(reason.name()), Some(reason));
            assert!(!reason.why().is_empty());
        }
        assert_eq!(SlowPath::of_name("another"), None);
    }
}
