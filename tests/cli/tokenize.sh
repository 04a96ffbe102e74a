#!/bin/sh
# loco tokenize: both ways, plain and in JSONL. usage: tokenize.sh PATH-OF-LOCO, from the root
loco=$1
. tests/shell.sh
"$loco" init --out "$scratch/m" --hidden_size 32 --num_hidden_layers 1 >/dev/null

# gives WHAT INPUT OUTPUT OPTION...: of loco tokenize, newlines at the end of output not compared.
gives() {
    what=$1 input=$2 want=$3
    shift 3
    printf "$input" | "$loco" tokenize --model "$scratch/m" "$@" >"$scratch/out" 2>"$scratch/err"
    got=$(cat "$scratch/out")
    [ "$got" = "$want" ] || printf '    wanted %s\n    got    %s\n' "$want" "$got"
    [ "$got" = "$want" ]
    verdict $? "$what"
}

# asks WHAT INPUT STATUS TEXT OPTION...: a refusal.
asks() {
    what=$1 want=$3 text=$4
    printf "$2" >"$scratch/in"
    shift 4
    refuses "$what" $want "$text" \
        sh -c "$loco tokenize --model $scratch/m $* <$scratch/in"
}

gives "text to ids, its newline included" 'hi\n' '104 105 10'
gives "special tokens in a text are read" '<|im_end|>' '258'
gives "no text is no id" '' ''
gives "ids to text" '104 105 258' 'hi<|im_end|>' --decode
gives "ids to text without special tokens" '104 105 258' 'hi' --decode --skip_special_tokens
gives "ids as Python prints them" '[104, 105]' 'hi' --decode
gives "rows of text" '{"text": "hi"}\n\n{"text": "", "x": 1}\n' '{"ids": [104, 105]}
{"ids": []}' --jsonl
gives "rows of ids" '{"ids": [104, 105, 195, 164]}\n{"ids": []}' '{"text": "hiä"}
{"text": ""}' --jsonl --decode
gives "a NUL in a text" '{"text": "a\\u0000b"}' '{"ids": [97, 0, 98]}' --jsonl
gives "bytes that are no UTF-8" 'a\377' '97 239 191 189'
says "are not passed over in silence" \
    "warning: standard input: byte 2: not UTF-8; this was read as U+FFFD, as others may be"
gives "bytes of a token may be no UTF-8" '255' "$(printf '\377')" --decode

head -c 3000 "$scratch/m/model.safetensors" | iconv -f latin1 -t utf-8 >"$scratch/text"
"$loco" tokenize --model "$scratch/m" "$scratch/text" |
    "$loco" tokenize --model "$scratch/m" --decode >"$scratch/back"
cmp -s "$scratch/text" "$scratch/back"
verdict $? "a file comes back byte for byte"
works "tokenizer.json alone" "$loco" tokenize --model "$scratch/m/tokenizer.json" "$scratch/text"
printf '104 300' | "$loco" tokenize --model "$scratch/m" --decode >"$scratch/out" 2>"$scratch/err"
says "an id without a token is not passed over in silence" \
    "warning: standard input: id 300 has no token and was left out, as others may be"

mkfifo "$scratch/pipe"
{ printf '{"text": "hi"}\n' >"$scratch/pipe"; } &
background=$!
works "a named pipe" timeout 10 "$loco" tokenize --model "$scratch/m" --jsonl "$scratch/pipe"
background=
says "is read once, whole" '{"ids": [104, 105]}'

asks "what is no id" '1 2 x3' 7 \
    "loco tokenize: error: standard input: 'x3' is no token id; expected numbers from 0 on, such \
as '12 7'" --decode
asks "a negative id" '{"ids": [1]}\n{"ids": [4, -1]}' 7 \
    "loco tokenize: error: standard input:2: ids[1]: expected an integer from 0 to 2147483646 (an \
id is never negative), got -1" --jsonl --decode
asks "a row without text" '{"text": "a"}\n{"texts": "a"}' 7 \
    "loco tokenize: error: standard input:2: text: expected a string" --jsonl
asks "a line that is not JSON" '{"text": "a"}\n{"text": a}' 4 \
    "loco tokenize: error: standard input:2: byte 10: not JSON (invalid token near 'a'): mend or \
remove the line" --jsonl
asks "a line that is not UTF-8" '{"text": "\377"}' 4 \
    "loco tokenize: error: standard input:1: byte 11: not UTF-8: save the file as UTF-8" --jsonl
asks "a row that training would drop" '{"text": "a"}\n{"text": "a", "text": "b"}' 7 \
    "loco tokenize: error: standard input:2: a field given twice: mend or remove the line" --jsonl
{ printf '{"text": "' && tr '\0' a </dev/zero; } 2>/dev/null |
    timeout 20 "$loco" tokenize --model "$scratch/m" --jsonl 2>"$scratch/err"
says "a line without an end is not read for ever" \
    "standard input:1: longer than 16 MiB: mend or remove the line"
asks "no line at all" '' 7 \
    "loco tokenize: error: standard input: no row; expected one JSON object {...} a line" --jsonl
refuses "a file that is not there" 3 \
    "loco tokenize: error: nowhere: cannot open: No such file or directory" \
    "$loco" tokenize --model "$scratch/m" nowhere
refuses "a model that is not there" 3 \
    "loco tokenize: error: nowhere: cannot open: No such file or directory" \
    "$loco" tokenize --model nowhere
finish
