#include "prompt.h"

#include "scan.h"

/* The dialects' keys: chat and responses parts, then Anthropic blocks (source, thinking, tool_use's
 * input), tool calls and their outputs. */
const struct json_name prompt_keys[PROMPT_KEYS] = {
    JSON_NAME("role"),       JSON_NAME("content"),       JSON_NAME("text"),
    JSON_NAME("thinking"),   JSON_NAME("refusal"),       JSON_NAME("summary"),
    JSON_NAME("output"),     JSON_NAME("arguments"),     JSON_NAME("input"),
    JSON_NAME("tool_calls"), JSON_NAME("function_call"), JSON_NAME("image_url"),
    JSON_NAME("image"),      JSON_NAME("image_pil"),     JSON_NAME("image_embeds"),
    JSON_NAME("source"),     JSON_NAME("input_audio"),   JSON_NAME("audio_url"),
    JSON_NAME("audio"),      JSON_NAME("audio_embeds"),  JSON_NAME("video_url"),
    JSON_NAME("video"),      JSON_NAME("file_data"),     JSON_NAME("file_url"),
};

const unsigned char prompt_key_uses[PROMPT_KEYS] = {
    PROMPT_ROLE,  PROMPT_TEXT,  PROMPT_TEXT,  PROMPT_TEXT,  PROMPT_TEXT,  PROMPT_TEXT,
    PROMPT_TEXT,  PROMPT_JSON,  PROMPT_JSON,  PROMPT_JSON,  PROMPT_JSON,  PROMPT_IMAGE,
    PROMPT_IMAGE, PROMPT_IMAGE, PROMPT_IMAGE, PROMPT_IMAGE, PROMPT_AUDIO, PROMPT_AUDIO,
    PROMPT_AUDIO, PROMPT_AUDIO, PROMPT_VIDEO, PROMPT_VIDEO, PROMPT_IMAGE, PROMPT_IMAGE,
};

enum prompt_use prompt_field_use(int scan_id)
{
    switch (scan_id) {
    case SCAN_TOOLS:
    case SCAN_FUNCTIONS: return PROMPT_JSON;
    case SCAN_INSTRUCTIONS:
    case SCAN_SYSTEM:
    case SCAN_QUERY: return PROMPT_TEXT;
    case SCAN_MESSAGES: return PROMPT_TURNS;
    default: return scan_id < SCAN_INSTRUCTIONS ? PROMPT_NONE : PROMPT_BATCH;
    }
}
