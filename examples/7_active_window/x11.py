"""The little of X11 that this example needs, by ctypes on libxcb: properties of windows, and the events of their changes.

An error of a request is no error of the program here: a window can be gone at any time, and has no properties then.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int16, c_uint8, c_uint16, c_uint32, c_void_p
from typing import Optional

# By xproto.h of XCB.
_PROPERTY_NOTIFY = 28
_EVENT_MASK, _PROPERTY_CHANGE = 1 << 11, 1 << 22
_INPUT_OUTPUT, _COPY_FROM_PARENT = 1, 0
_REPLACE = 0
_ANY_TYPE = 0
#: Types of properties.
CARDINAL, STRING, WINDOW = 6, 31, 33


class Gone(Exception):
    """The X server does not answer any more."""


class _Cookie(ctypes.Structure):
    _fields_ = [("sequence", c_uint32)]


class _Screens(ctypes.Structure):
    _fields_ = [("data", POINTER(c_uint32)), ("rest", c_int), ("index", c_int)]


class _Property(ctypes.Structure):
    _fields_ = [("response", c_uint8), ("format", c_uint8), ("sequence", c_uint16), ("length", c_uint32), ("type", c_uint32)]


class _PropertyEvent(ctypes.Structure):
    _fields_ = [("response", c_uint8), ("pad", c_uint8), ("sequence", c_uint16), ("window", c_uint32), ("atom", c_uint32)]


class _Atom(ctypes.Structure):
    _fields_ = [("response", c_uint8), ("pad", c_uint8), ("sequence", c_uint16), ("length", c_uint32), ("atom", c_uint32)]


_FUNCTIONS = {
    "xcb_connect": (c_void_p, c_char_p, POINTER(c_int)),
    "xcb_connection_has_error": (c_int, c_void_p),
    "xcb_get_file_descriptor": (c_int, c_void_p),
    "xcb_flush": (c_int, c_void_p),
    "xcb_get_setup": (c_void_p, c_void_p),
    "xcb_setup_roots_iterator": (_Screens, c_void_p),
    "xcb_screen_next": (None, POINTER(_Screens)),
    "xcb_generate_id": (c_uint32, c_void_p),
    "xcb_intern_atom": (_Cookie, c_void_p, c_uint8, c_uint16, c_char_p),
    "xcb_intern_atom_reply": (POINTER(_Atom), c_void_p, _Cookie, c_void_p),
    "xcb_get_property": (_Cookie, c_void_p, c_uint8, c_uint32, c_uint32, c_uint32, c_uint32, c_uint32),
    "xcb_get_property_reply": (POINTER(_Property), c_void_p, _Cookie, POINTER(c_void_p)),
    "xcb_get_property_value": (c_void_p, POINTER(_Property)),
    "xcb_get_property_value_length": (c_int, POINTER(_Property)),
    "xcb_change_property": (_Cookie, c_void_p, c_uint8, c_uint32, c_uint32, c_uint32, c_uint8, c_uint32, c_char_p),
    "xcb_change_window_attributes": (_Cookie, c_void_p, c_uint32, c_uint32, POINTER(c_uint32)),
    "xcb_create_window": (
        *(_Cookie, c_void_p, c_uint8, c_uint32, c_uint32, c_int16, c_int16, c_uint16, c_uint16, c_uint16, c_uint16),
        *(c_uint32, c_uint32, c_void_p),
    ),
    "xcb_destroy_window": (_Cookie, c_void_p, c_uint32),
    "xcb_poll_for_event": (POINTER(_PropertyEvent), c_void_p),
}


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libxcb.so.1")
    except OSError:
        sys.exit("libxcb.so.1 is missing: install the package libxcb1 of your distribution.")
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None


class Display:
    """A connection to the X server that `DISPLAY` names."""

    def __init__(self) -> None:
        self._xcb = _load()
        number = c_int()
        self._connection = self._xcb.xcb_connect(None, byref(number))
        self._check()
        screens = self._xcb.xcb_setup_roots_iterator(self._xcb.xcb_get_setup(self._connection))
        for _ in range(number.value):
            self._xcb.xcb_screen_next(byref(screens))
        #: The root window.
        self.root: int = screens.data[0]
        self._atoms: dict[str, int] = {}

    def _check(self) -> None:
        if self._xcb.xcb_connection_has_error(self._connection) != 0:
            raise Gone

    def fileno(self) -> int:
        """For select. Take the events that have come already, before: they are in memory."""
        return int(self._xcb.xcb_get_file_descriptor(self._connection))

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            text = name.encode()
            cookie = self._xcb.xcb_intern_atom(self._connection, 0, len(text), text)
            reply = self._xcb.xcb_intern_atom_reply(self._connection, cookie, None)
            if not reply:
                raise Gone
            self._atoms[name] = reply.contents.atom
            _free(reply)
        return self._atoms[name]

    def get(self, window: int, name: str) -> Optional[bytes]:
        """A property of a window, up to 4 KiB; None if it is not set, or there is no such window."""
        error = c_void_p()
        place = (window, self.atom(name), _ANY_TYPE, 0, 1024)
        cookie = self._xcb.xcb_get_property(self._connection, 0, *place)
        reply = self._xcb.xcb_get_property_reply(self._connection, cookie, byref(error))
        if not reply:
            _free(error)
            self._check()
            return None
        length = self._xcb.xcb_get_property_value_length(reply)
        value = ctypes.string_at(self._xcb.xcb_get_property_value(reply), length) if reply.contents.type else None
        _free(reply)
        return value

    def get_number(self, window: int, name: str) -> Optional[int]:
        """A property that is a number of 32 bits, as windows and process ids are. None if it is none, or 0."""
        value = self.get(window, name) or b""
        return struct.unpack_from("=I", value)[0] or None if len(value) >= 4 else None

    def watch_properties(self, window: int) -> None:
        mask = (c_uint32 * 1)(_PROPERTY_CHANGE)
        self._xcb.xcb_change_window_attributes(self._connection, window, _EVENT_MASK, mask)
        self.flush()

    def changed(self) -> set[int]:
        """Takes the events that have come, and returns the atoms of the properties that have changed."""
        atoms = set()
        while event := self._xcb.xcb_poll_for_event(self._connection):
            if event.contents.response & 0x7F == _PROPERTY_NOTIFY:
                atoms.add(event.contents.atom)
            _free(event)
        self._check()
        return atoms

    def set_numbers(self, window: int, name: str, kind: int, *values: int) -> None:
        data = struct.pack(f"={len(values)}I", *values)
        place = (window, self.atom(name), kind, 32, len(values), data)
        self._xcb.xcb_change_property(self._connection, _REPLACE, *place)

    def set_text(self, window: int, name: str, kind: int, text: str) -> None:
        data = text.encode()
        place = (window, self.atom(name), kind, 8, len(data), data)
        self._xcb.xcb_change_property(self._connection, _REPLACE, *place)

    def create_window(self) -> int:
        window: int = self._xcb.xcb_generate_id(self._connection)
        place, shape = (window, self.root, 0, 0, 64, 64, 0), (_INPUT_OUTPUT, _COPY_FROM_PARENT, 0, None)
        self._xcb.xcb_create_window(self._connection, _COPY_FROM_PARENT, *place, *shape)
        return window

    def destroy_window(self, window: int) -> None:
        self._xcb.xcb_destroy_window(self._connection, window)

    def flush(self) -> None:
        self._xcb.xcb_flush(self._connection)
        self._check()
