{{/* What differs from server to server: image, ports, paths, command. */}}

{{/* The server's own values, those of the release where it sets them, as YAML. */}}
{{- define "serving.server" -}}
{{- $backend := get (dict "vllm" "vllm-python-" "trt-llm" "trtllm-python-") .Values.backend -}}
{{- $servers := dict
  "tensorflow" (dict "image" "tensorflow/serving:latest-gpu" "grpc" 8500 "http" 8501
    "metricsPath" "/monitoring/prometheus/metrics"
    "ready" (printf "/v1/models/%s" .Values.modelName))
  "triton" (dict "image" (printf "nvcr.io/nvidia/tritonserver:24.08-%spy3" $backend) "grpc" 8001 "http" 8000
    "metricsPort" 8002 "metricsPath" "/metrics"
    "ready" "/v2/health/ready" "live" "/v2/health/live")
  "torchserve" (dict "image" "pytorch/torchserve:latest-gpu" "grpc" 7070 "http" 8080
    "metricsPort" 8082 "metricsPath" "/metrics" "ready" "/ping" "live" "/ping")
  "vllm" (dict "image" "vllm/vllm-openai:latest" "grpc" 0 "http" 8000
    "metricsPath" "/metrics" "ready" "/health" "live" "/health")
  "custom" (dict "image" "" "grpc" 0 "http" 0
    "metricsPort" 0 "metricsPath" .Values.metrics.path
    "ready" .Values.probes.path "live" .Values.probes.path)
-}}
{{- $server := get $servers .Values.server -}}
{{- /* Only the name of one model, without "/", makes the path that TensorFlow Serving answers on. */ -}}
{{- if and (eq .Values.server "tensorflow") (or .Values.modelConfigFile (not .Values.modelName) (contains "/" .Values.modelName)) -}}
{{- $_ := set $server "ready" "" -}}
{{- end -}}
{{- $http := .Values.restApiPort | default $server.http -}}
{{- if and .Values.metrics.port (hasKey $server "metricsPort") -}}
{{- $_ := set $server "metricsPort" .Values.metrics.port -}}
{{- end -}}
image: {{ .Values.image | default $server.image | quote }}
grpc: {{ .Values.port | default $server.grpc }}
http: {{ $http }}
metricsPort: {{ $server.metricsPort | default $http }}
metricsPath: {{ $server.metricsPath }}
ready: {{ $server.ready | default "" | quote }}
live: {{ $server.live | default "" | quote }}
{{- end -}}

{{/* TensorFlow Serving's model_version_policy, in its text form: values. */}}
{{- define "serving.versions" -}}
{{- $kind := index (splitList ":" .versionPolicy) 0 -}}
{{- $number := trimPrefix $kind .versionPolicy | trimPrefix ":" -}}
{{- if eq $kind "all" -}}
all {}
{{- else if eq $kind "specific" -}}
specific { versions: {{ $number }} }
{{- else -}}
latest { num_versions: {{ $number | default "1" }} }
{{- end -}}
{{- end -}}

{{/* The command and arguments of the server itself, as a YAML list: (list root server). */}}
{{- define "serving.command" -}}
{{- $values := (index . 0).Values -}}
{{- $server := index . 1 -}}
{{- if $values.command -}}
- {{ $values.shell | quote }}
- -c
- {{ $values.command | quote }}
- {{ $values.server }}
{{- else if eq $values.server "tensorflow" -}}
- /usr/bin/tensorflow_model_server
- --port={{ $server.grpc }}
- --rest_api_port={{ $server.http }}
{{- if $values.modelConfigFile }}
- {{ printf "--model_config_file=%s" $values.modelConfigFile | quote }}
{{- else if $values.versionPolicy }}
- --model_config_file=/etc/gpushare-serving/models.config
{{- else }}
- {{ printf "--model_name=%s" $values.modelName | quote }}
- {{ printf "--model_base_path=%s" $values.modelPath | quote }}
{{- end }}
{{- if $values.monitoringConfigFile }}
- {{ printf "--monitoring_config_file=%s" $values.monitoringConfigFile | quote }}
{{- else if $values.metrics.enabled }}
- --monitoring_config_file=/etc/gpushare-serving/monitoring.config
{{- end }}
{{- else if eq $values.server "triton" -}}
- tritonserver
- {{ printf "--model-repository=%s" $values.modelPath | quote }}
- --http-port={{ $server.http }}
- --grpc-port={{ $server.grpc }}
- --allow-metrics={{ $values.metrics.enabled }}
- --metrics-port={{ $server.metricsPort }}
{{- if $values.loadModels }}
- --model-control-mode=explicit
{{- end }}
{{- range $values.loadModels }}
- {{ printf "--load-model=%s" . | quote }}
{{- end }}
{{- else if eq $values.server "torchserve" -}}
- torchserve
- --start
- --foreground
- --ts-config=/etc/gpushare-serving/config.properties
- {{ printf "--model-store=%s" $values.modelPath | quote }}
- {{ printf "--models=%s=%s.mar" $values.modelName $values.modelName | quote }}
{{- else if eq $values.server "vllm" -}}
- vllm
- serve
- {{ $values.modelPath | quote }}
- {{ printf "--served-model-name=%s" $values.modelName | quote }}
- --host=0.0.0.0
- --port={{ $server.http }}
{{- if and (gt (int $values.gpuCount) 1) (not (regexMatch "(^| )(--[a-z_-]*parallel|-[tpd]p[a-z]*( |=|$))" (join " " $values.extraArgs))) }}
- --tensor-parallel-size={{ int $values.gpuCount }}
{{- end }}
{{- end }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
