/* What stands between the texts of a prompt in the bytes that are hashed into prefix keys. */
#ifndef HEADRACE_MARKS_H
#define HEADRACE_MARKS_H

/* None can occur in the UTF-8 of text (nor in a surrogate coded like it), so that borders are
 * unambiguous. No container gets an end mark where something may be appended: growth must keep all
 * earlier bytes. */
enum {
    MARK_FIELD = 0xF9,
    MARK_STRING = 0xFB,
    MARK_MEDIA = 0xFC,
    MARK_JSON = 0xFD,
    MARK_CONTENT = 0xFE,
    MARK_TURN = 0xFF,
};

#endif
