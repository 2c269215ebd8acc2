#!/usr/bin/env python3
"""Writes harness/model/unicode_ranges.c: what Unicode 16.0 says and the Unicode 14.0 of Debian 12's PCRE2 does not.

Only needed when the reference moves on:  python3.11 -m pip install unicodedata2==16.0.0 regex==2024.11.6
                                          python3.11 harness/setup/unicode_ranges.py > harness/model/unicode_ranges.c
"""
import unicodedata

import regex
import unicodedata2

SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin Thai".split()
assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "16.0.0"
points = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]


def runs(values):
    """[first, last, value] of neighbours with one value; None is left out."""
    out = []
    for point, value in values:
        if value is None:
            continue
        if out and out[-1][1] == point - 1 and out[-1][2] == value:
            out[-1][1] = point
        else:
            out.append([point, point, value])
    return out


def change(point):
    old, new = unicodedata.category(chr(point)), unicodedata2.category(chr(point))
    return None if old == new else (old, new)


print("""/* Written by harness/setup/unicode_ranges.py from Unicode 14.0 and 16.0; do not edit. */
#include "harness/model/unicode_ranges.h"

const fl_unicode_change fl_unicode_changes[] = {""")
for first, last, (old, new) in runs((point, change(point)) for point in points):
    print(f'    {{0x{first:x}, 0x{last:x}, "{old}", "{new}"}},')
print("""};
const size_t fl_unicode_change_count = sizeof fl_unicode_changes / sizeof fl_unicode_changes[0];

const fl_unicode_script fl_unicode_scripts[] = {""")
for name in SCRIPTS:
    is_in = regex.compile(rf"\p{{Script={name}}}").match
    for first, last, _ in runs((point, True if is_in(chr(point)) else None) for point in points):
        print(f'    {{"{name}", 0x{first:x}, 0x{last:x}}},')
print("""};
const size_t fl_unicode_script_count = sizeof fl_unicode_scripts / sizeof fl_unicode_scripts[0];""")
