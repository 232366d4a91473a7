//! One row of the table, and the macros that write rows.

/// The class of a function: its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Launches a kernel or a host function.
    Launch,
    /// Copies or moves memory.
    Copy,
    /// Fills memory.
    Memset,
    /// Frees, unmaps or maps memory, or changes memory objects that kernels see (textures, resources).
    Memory,
    /// Creates, records, waits for, queries or destroys an event.
    Event,
    /// Waits or signals: on the host, by values in memory, by external semaphores.
    Sync,
    /// Queries a stream.
    Query,
    /// Captures a stream into a graph. From the first capture on, each launch must check whether its stream
    /// is being captured.
    Capture,
    /// Launches, makes, changes or destroys an executable graph, or destroys what one can hold.
    Graph,
    /// Creates or destroys a stream, or resets a device.
    Lifecycle,
    /// Loads code or looks up functions.
    Resolve,
    /// Reads the last error.
    Error,
    /// Of no concern to the library. The row gives the reason.
    Passthrough,
}

/// The rule by which the library intercepts a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A handler of its own.
    Direct,
    /// The conservative handler: it drains the queues concerned, translates stream arguments, and forwards
    /// the call.
    Drain,
    /// Only the per-thread stream is translated; then the call is forwarded. The function enqueues, changes
    /// and frees nothing.
    Translate,
    /// Not exported: calls reach the runtime without the library.
    Forward,
}

/// A release of HIP that is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// 5.2.3
    V5_2_3,
    /// 5.7.1
    V5_7_1,
    /// 6.4.3
    V6_4_3,
    /// 7.2.4
    V7_2_4,
}

impl Release {
    /// All releases, oldest first.
    pub const ALL: [Self; 4] = [Self::V5_2_3, Self::V5_7_1, Self::V6_4_3, Self::V7_2_4];

    /// Returns the version number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V5_2_3 => "5.2.3",
            Self::V5_7_1 => "5.7.1",
            Self::V6_4_3 => "6.4.3",
            Self::V7_2_4 => "7.2.4",
        }
    }
}

/// A set of releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Releases(u8);

impl Releases {
    /// No release.
    pub const NONE: Self = Self(0);

    /// Returns this set with one more release.
    #[must_use]
    pub const fn with(self, release: Release) -> Self {
        Self(self.0 | 1 << release as u8)
    }

    /// Returns true if the release is in the set.
    pub const fn contains(self, release: Release) -> bool {
        self.0 & 1 << release as u8 != 0
    }

    /// Returns the releases of the set, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Release> {
        Release::ALL.into_iter().filter(move |&release| self.contains(release))
    }
}

impl core::fmt::Debug for Releases {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter().map(Release::as_str)).finish()
    }
}

// The sets that occur, under the names that the rows use.
pub(crate) const FROM_7_2: Releases = Releases::NONE.with(Release::V7_2_4);
pub(crate) const FROM_6_4: Releases = FROM_7_2.with(Release::V6_4_3);
pub(crate) const FROM_5_7: Releases = FROM_6_4.with(Release::V5_7_1);
pub(crate) const ALL: Releases = FROM_5_7.with(Release::V5_2_3);
pub(crate) const TO_5_2: Releases = Releases::NONE.with(Release::V5_2_3);
pub(crate) const TO_6_4: Releases = IN_5_7_AND_6_4.with(Release::V5_2_3);
pub(crate) const IN_5_7_AND_6_4: Releases = Releases::NONE.with(Release::V5_7_1).with(Release::V6_4_3);

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Symbol.
    pub name: &'static str,
    /// Class.
    pub class: Class,
    /// Rule.
    pub rule: Rule,
    /// Releases that export the function.
    pub releases: Releases,
    /// The reason why the function may pass without the library (one of [`reason::ALL`](crate::reason::ALL)) or why
    /// the conservative handler is right (one of [`reason::CONSERVATIVE`](crate::reason::CONSERVATIVE)); empty for
    /// all others.
    pub reason: &'static str,
}

impl Function {
    /// Returns true if the library exports this name.
    pub const fn is_exported(&self) -> bool {
        !matches!(self.rule, Rule::Forward)
    }

    /// Returns true if handle 0 means the calling thread's own stream (the `_spt` twins).
    pub const fn is_per_thread(&self) -> bool {
        matches!(self.name.as_bytes(), [.., b'_', b's', b'p', b't'])
    }
}

/// `rows![Class; Rule RELEASES "name" REASON, ...]`. The reason is that of a conservative handler.
macro_rules! rows {
    ($class:ident; $($rule:ident $releases:ident $name:literal $($reason:ident)?,)*) => {
        &[$($crate::function::Function {
            name: $name,
            class: $crate::function::Class::$class,
            rule: $crate::function::Rule::$rule,
            releases: $crate::function::$releases,
            reason: $crate::function::reason_of!($($reason)?),
        }),*]
    };
}
pub(crate) use rows;

/// The text of a reason, or none.
macro_rules! reason_of {
    () => {
        ""
    };
    ($reason:ident) => {
        $crate::reason::$reason
    };
}
pub(crate) use reason_of;

/// `passes![reason::REASON; RELEASES "name", ...]`
macro_rules! passes {
    ($reason:path; $($releases:ident $name:literal,)*) => {
        &[$($crate::function::Function {
            name: $name,
            class: $crate::function::Class::Passthrough,
            rule: $crate::function::Rule::Forward,
            releases: $crate::function::$releases,
            reason: $reason,
        }),*]
    };
}
pub(crate) use passes;
