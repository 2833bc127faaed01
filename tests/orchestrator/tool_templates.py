"""Chat templates with tools, in the shapes that people use."""

HERMES = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- 'You may call functions:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{ tool | tojson }}{% endfor %}
    {{- '\\n</tools>\\nFor a call write <tool_call>{"name": ..., "arguments": ...}</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{% endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
"""The shape of Hermes and Qwen 2.5."""

_IN_JSON = """
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
"""
_IN_TAGS = """
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- for key, value in tool_call.arguments | items %}
                {{- '<parameter=' + key + '>\\n' }}
                {{- value if value is string else value | tojson }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
"""
QWEN3_CODER = HERMES.replace(_IN_JSON, _IN_TAGS).replace(
    '{"name": ..., "arguments": ...}', "<function="
)
"""The shape of Qwen 3 Coder."""

THINKING = HERMES.replace(
    "{%- if message.content %}",
    "{%- if message.reasoning_content %}"
    "{{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}{% endif %}"
    "{%- if message.content %}",
).replace("assistant\\n' }}{% endif %}", "assistant\\n<think>\\n' }}{% endif %}")
"""A model that always reasons."""

LLAMA3 = """
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}{% set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{% endif %}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role in ['ipython', 'tool'] or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {%- if loop.first and tools is not none %}
            {{- 'Answer with {"name": function, "parameters": arguments}.\\n\\n' }}
            {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\\n\\n' }}{% endfor %}
        {%- endif %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
"""The shape of Llama 3.1."""

MISTRAL = """
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}{% set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set users = loop_messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != 'return' %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ', ' }}{% endif %}
                {%- endfor %}
                {{- '}}' }}{% if not loop.last %}{{- ', ' }}{% else %}{{- ']' }}{% endif %}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' }}
        {%- if loop.last and system is defined %}{{- system + '\\n\\n' }}{% endif %}
        {{- message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if tool_call.id is not defined or tool_call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be strings with length 9!') }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ', ' }}{% else %}{{- ']' + eos_token }}{% endif %}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' }}
        {{- message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""
"""The shape of Mistral 7B 0.3 and its successors."""

DEEPSEEK = """
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.content is none %}
        {%- for tool in message.tool_calls %}
            {{- '<call>' + tool.function.name + '\\n```json\\n' }}
            {{- tool.function.arguments + '\\n```' }}
        {%- endfor %}
    {%- else %}
        {{- '<' + message.role + '>' + message.content }}
    {%- endif %}
{%- endfor %}
{%- if tools %}{{- tools | tojson }}{% endif %}
"""
"""The shape of DeepSeek V3, which reads arguments as text, and calls where there is no content."""

GLM45 = """
{%- for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}{% endfor %}
{%- for m in messages %}
<|{{ m.role }}|>
{{ m.content }}
{%- for tc in m.tool_calls %}
{{ '\\n<tool_call>' + tc.function.name }}
{% for k, v in tc.function.arguments.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{%- endfor %}
"""
"""The shape of GLM 4.5."""

DEEPSEEK_V3 = """
{%- for message in messages %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] is defined %}
        {%- for tool in message['tool_calls'] %}
            {{'<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>'}}
            {{tool['function']['arguments'] + '<｜tool▁call▁end｜>'}}
        {%- endfor %}
        {{'<｜tool▁calls▁end｜>'}}
    {%- else %}
        {{'<｜User｜>' + message['content']}}
    {%- endif %}
{%- endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
"""
"""The shape of DeepSeek V3.1."""

PYTHONIC = """
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {{- "Respond in the format [func_name1(params_name1=params_value1...), func_name2(params)]" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{% endfor %}
{%- endif %}
{%- for message in messages %}{{- message.content }}{% endfor %}
"""
"""The shape of templates for Llama 3.2, Llama 4 and ToolACE."""
