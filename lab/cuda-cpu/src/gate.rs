//! The checks at the start of every function (the library is initialised, the thread may call it, the context
//! is alive), and the types of arguments that come from the program.

use crate::abi::{
    Answer, CONTEXT_IS_DESTROYED, CUresult, Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE,
    NOT_INITIALIZED, NOT_PERMITTED, STREAM_LEGACY, STREAM_PER_THREAD,
};
use crate::engine::Held;
use crate::host;
use crate::start;
use crate::state::{STATE, thread};
use crate::work;

/// Converts the result of a function's body to the driver's code. The body is a closure, so that it can use
/// `?`.
pub fn answer(body: impl FnOnce() -> Answer) -> CUresult {
    match body() {
        Ok(()) => 0,
        Err(error) => error,
    }
}

/// Declares functions of the driver's C interface. Their pointer arguments are [`Out`], [`In`] and [`Text`],
/// and NVIDIA's documentation requires the program to pass valid ones.
#[macro_export]
macro_rules! api {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        // SAFETY: the function is one of the CUDA driver's, which this library replaces, so no other symbol
        // conflicts.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> $crate::abi::CUresult {
            $crate::gate::answer(|| $body)
        }
    )*};
}

/// A pointer argument to which a function writes a result.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Stores a result.
    ///
    /// # Errors
    /// `INVALID_VALUE`: the pointer is null.
    pub fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the pointer comes from the program, and NVIDIA's interface requires it to be valid for a
        // write of this type. Any alignment is permitted.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Stores a result unless the pointer is null.
    pub fn offer(self, value: T) {
        // A program passes null if it does not want the result.
        let _ = self.set(value);
    }

    /// Returns true if the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns a pointer to the `index`th element of an array.
    pub fn at(self, index: usize) -> Out<T> {
        if self.0.is_null() { self } else { Out(self.0.wrapping_add(index)) }
    }

    /// Returns the same pointer for another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T: Copy> Out<T> {
    /// Reads the value that the program has stored there.
    ///
    /// # Errors
    /// `INVALID_VALUE`: the pointer is null.
    pub fn get(self) -> Answer<T> {
        In(self.0).get()
    }
}

/// A pointer argument from which a function reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Makes a pointer of an address that the program passed, such as in a structure.
    pub fn from_address(address: usize) -> In<T> {
        In(address as *const T)
    }

    /// Reads the value.
    ///
    /// # Errors
    /// `INVALID_VALUE`: the pointer is null.
    pub fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the pointer comes from the program, and NVIDIA's interface requires it to be valid for a
        // read of this type. Any alignment is permitted, and any bytes are a valid value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads an array of `count` values.
    ///
    /// # Errors
    /// `INVALID_VALUE`: the pointer is null although `count` is not 0, or the array exceeds the address
    /// space.
    pub fn all(self, count: usize) -> Answer<Vec<T>> {
        if count > isize::MAX as usize / size_of::<T>().max(1) {
            return Err(INVALID_VALUE);
        }
        (0..count)
            .map(
                |index| {
                    if self.0.is_null() { Err(INVALID_VALUE) } else { In(self.0.wrapping_add(index)).get() }
                },
            )
            .collect()
    }

    /// Returns the address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(usize);

impl Text {
    /// Copies the string.
    ///
    /// # Errors
    /// `INVALID_VALUE`: it is not mapped, has no zero byte within 64 KiB, or is not UTF-8.
    pub fn text(self) -> Answer<String> {
        String::from_utf8(host::text(self.0, 1 << 16)?).map_err(|_| INVALID_VALUE)
    }
}

/// `cuInit`.
///
/// # Errors
/// `NOT_INITIALIZED`: this process was forked from one that had initialised the library.
pub fn initialise() -> Answer {
    if start::is_forked() {
        return Err(NOT_INITIALIZED);
    }
    if work::in_host_function() {
        return Err(NOT_PERMITTED);
    }
    start::note();
    Ok(())
}

/// Makes the checks of functions that need no context.
///
/// # Errors
/// `NOT_INITIALIZED`, also in a forked child; `NOT_PERMITTED` inside a host function.
pub fn initialised() -> Answer {
    if start::is_forked() || !start::is_noted() {
        return Err(NOT_INITIALIZED);
    }
    if work::in_host_function() { Err(NOT_PERMITTED) } else { Ok(()) }
}

/// A call with a context. It holds the lock.
pub struct Call {
    /// All tables.
    pub state: Held,
    /// The current context.
    pub context: Handle,
    /// Its device.
    pub device: usize,
}

/// Makes the checks of functions that use the current context.
///
/// # Errors
/// As [`initialised`]; `INVALID_CONTEXT` and `CONTEXT_IS_DESTROYED`; the error of the context, if it has one.
pub fn enter() -> Answer<Call> {
    let call = enter_anyway()?;
    match call.state.contexts[&call.context].error {
        0 => Ok(call),
        error => Err(error),
    }
}

/// Like [`enter`], but permits a context that has an error.
///
/// # Errors
/// As [`enter`], without the error of the context.
pub fn enter_anyway() -> Answer<Call> {
    initialised()?;
    let context = thread(|own| own.contexts.last().copied()).flatten().unwrap_or(0);
    if context == 0 {
        return Err(INVALID_CONTEXT);
    }
    let state = STATE.lock();
    let device = state.contexts.get(&context).ok_or(CONTEXT_IS_DESTROYED)?.device;
    Ok(Call { state, context, device })
}

impl Call {
    /// Returns the stream that an argument means.
    ///
    /// # Errors
    /// `INVALID_HANDLE`: there is no such stream. `INVALID_CONTEXT`: the thread is ending.
    pub fn stream(&mut self, argument: Handle) -> Answer<Handle> {
        match argument {
            0 | STREAM_LEGACY => Ok(self.state.contexts[&self.context].legacy),
            STREAM_PER_THREAD => {
                let key = (thread(|own| own.number).ok_or(INVALID_CONTEXT)?, self.context);
                if let Some(stream) = self.state.of_threads.get(&key) {
                    return Ok(*stream);
                }
                let stream = self.state.add_stream(self.context, false, 0, 0);
                self.state.of_threads.insert(key, stream);
                Ok(stream)
            }
            _ => match self.state.streams.get(&argument) {
                Some(stream) if !stream.closing && !stream.legacy => Ok(argument),
                _ => Err(INVALID_HANDLE),
            },
        }
    }
}
