#!/usr/bin/env bash
# Makes the model under export/pt_en, from the pairs to the export:
#
#     bash recipes/pt_en/make.sh DATA FOLDER
#
# DATA holds ted/, pt_en/ (train.free.tsv.gz, books.free.tsv.gz, valid.tsv and the test
# sets) and wordnet/ (WordNet 3.1's data.noun and so on). All that is made on the way goes
# to FOLDER, and the export to FOLDER/export/pt_en. The same command continues after an
# interruption: it makes no file twice, and training resumes.
#
# TEACHER names a Python with the packages that `dictionary.py` and `distill.py` need; by
# default it is the same Python.
set -euo pipefail
data=$(realpath "${1:?name the folder of the data}")
folder=${2:?name a folder to work in}
recipe=$(cd "$(dirname "$0")" && pwd)
recipes=$(dirname "$recipe")
export PYTHONPATH=$recipes${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$folder"
cd "$folder"

tests=()
for test in ted/test ted/validation pt_en/tatoeba.test pt_en/valid; do
  tests+=(--test "$data/$test.tsv")
done
# Leaves out what shares a side, or eight words in a row, with a test sentence.
without_tests() { # SOURCE NAME
  [ -e "$2.tsv.gz" ] ||
    python "$recipes/overlap.py" "$1" "${tests[@]}" --out "$2.tsv.gz" | tee "$2.overlap.txt"
}
teach() { # TEXT NAME WAY [--back]
  "${TEACHER:-python}" "$recipes/distill.py" "$1" "$2.tsv.gz" --teacher "firefox:$3" ${4:-}
}

for name in train books; do without_tests "$data/pt_en/$name.free.tsv.gz" "$name"; done
[ -e more.txt ] || python "$recipe/prepare.py" repair .
[ -e english.txt ] ||
  "${TEACHER:-python}" "$recipe/dictionary.py" "$data/wordnet" english.txt
teach english.txt dictionary en-pt --back
teach taught.txt taught pt-en
teach more.txt more pt-en
[ -e made.dictionary.tsv.gz ] || python "$recipe/prepare.py" finish .
for name in train books taught more dictionary phrasebook; do
  source=made.$name.tsv.gz
  [ $name != phrasebook ] || source=phrasebook
  # Once more, since the teacher may have written what is in a test set.
  without_tests "$source" "clean.$name"
  [ -e "copies.$name.tsv.gz" ] ||
    python "$recipes/augment.py" "clean.$name.tsv.gz" "copies.$name.tsv.gz" \
      --joined 0.3 --careless 0.35
done
[ -e valid.tsv ] || ln -s "$data/pt_en/valid.tsv" valid.tsv

tfxformer train --config "$recipe/first.yaml" --out first
tfxformer train --config "$recipe/second.yaml" --from first --out second
# With a moving average of the weights, the best checkpoint is that average.
[ -e export/pt_en ] ||
  tfxformer export --run second --precision float16 --to export --name pt_en
