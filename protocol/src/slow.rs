//! Why a launch that could not go at once was not deferred either: it was made in its turn on the calling thread, which
//! waited for that as long as the queue was held.

/// One reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlowPath {
    /// What arguments the kernel has is not known.
    Code,
    /// It has attributes of which it is not known what they mean later.
    Attributes,
    /// It is cooperative, and larger than any that the runtime has taken before.
    Cooperative,
    /// The thread's current device is another than the stream's.
    Device,
    /// It is larger than the device's limits.
    Limits,
    /// Its arguments could not be copied.
    Arguments,
    /// It records an event of another device, or one that is gone.
    Events,
}

impl SlowPath {
    /// All of them; the place of each is its number.
    pub const ALL: [Self; 7] = [
        Self::Code,
        Self::Attributes,
        Self::Cooperative,
        Self::Device,
        Self::Limits,
        Self::Arguments,
        Self::Events,
    ];

    /// Its place in [`SlowPath::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Its name in JSON, metrics and logs.
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

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// For people, behind "because".
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
    fn every_reason_has_its_place_and_its_name() {
        for (number, reason) in SlowPath::ALL.into_iter().enumerate() {
            assert_eq!(reason.number(), number, "{reason:?}");
            assert_eq!(SlowPath::of_name(reason.name()), Some(reason));
            assert!(!reason.why().is_empty());
        }
        assert_eq!(SlowPath::of_name("another"), None);
    }
}
